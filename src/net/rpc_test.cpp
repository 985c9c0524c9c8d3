// Requests and replies: they find each other, errors come back as they were given, limits answer
// kBusy, and losing, stopping and restarting end or go on as promised. On in-process pairs with a
// fake clock, the main ones also over loopback sockets.
#include "net/rpc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "net/net_testing.h"

namespace mooncake::net {
namespace {

using namespace testing;

// A handler that ends when the test says so.
struct Gate {
  explicit Gate(os::Executor& executor_) : executor(executor_) {}
  os::Executor& executor;
  int waiting = 0;
  std::vector<std::unique_ptr<os::Completion<bool>>> doors;

  Task<Result<Bytes>> wait(ServerCall& call) {
    ++waiting;
    doors.push_back(std::make_unique<os::Completion<bool>>(executor));
    os::Completion<bool>& door = *doors.back();
    co_await door;
    --waiting;
    co_return Bytes(call.body().begin(), call.body().end());
  }
  void open() {
    for (auto& door : doors)
      door->set(true);
  }
};

Task<Result<Bytes>> refuse_politely(ServerCall&) {
  co_return fail(Error(Code::kNoSpace, std::string(3000, 'x')).with_retry_after(77));
}

class RpcTest : public ::testing::Test {
 protected:
  RpcTest() : gate(net.executor) {}

  std::unique_ptr<RpcServer> make_server(RpcServer::Options options = {}) {
    options.identity = identity(100);
    auto made = RpcServer::create(net.env(), std::move(options));
    made->handle(kEcho, echo);
    made->handle(kGet, refuse_politely);
    made->handle(kWait, [this](ServerCall& call) { return gate.wait(call); });
    return made;
  }
  std::unique_ptr<RpcClient> make_client(RpcClient::Options options = {}) {
    options.identity = identity(1);
    return RpcClient::create(net.env(), pair_connector(net.executor, at), std::move(options));
  }
  CallOptions within(base::Duration duration) {
    CallOptions options;
    options.deadline = net.in(duration);
    return options;
  }
  Result<Reply> call(Method method, std::string_view text, base::Duration duration = seconds(1)) {
    return net.executor.run(client->call(method, base::as_bytes(text), within(duration)));
  }
  // Starts a call that the test looks at later.
  void start(Method method, std::string_view text, base::Duration duration = seconds(10)) {
    net.executor.post(
        [this, method, text, duration] { group.start(store(method, text, duration)); });
    net.executor.run_ready();
  }
  Task<void> store(Method method, std::string_view text, base::Duration duration) {
    results.push_back(co_await client->call(method, base::as_bytes(text), within(duration)));
  }
  Task<void> store_cancellable(std::string_view text, os::CancelToken* cancel) {
    CallOptions options = within(seconds(10));
    options.cancel = cancel;
    results.push_back(co_await client->call(kWait, base::as_bytes(text), options));
  }
  void SetUp() override {
    server = make_server();
    at = server.get();
    client = make_client();
  }
  void TearDown() override {
    gate.open();
    net.executor.run(stop_all());
    net.executor.run_ready();
  }
  Task<bool> stop_all() {
    if (client) co_await client->stop();
    if (server) co_await server->stop();
    co_return true;
  }
  Task<void> stop_server() { co_await server->stop(); }
  Task<bool> stop_one(RpcClient& one) {
    co_await one.stop();
    co_return true;
  }
  Task<void> stop_client() { co_await client->stop(); }

  SimNet net;
  Gate gate;
  std::unique_ptr<RpcServer> server;
  RpcServer* at = nullptr;
  std::unique_ptr<RpcClient> client;
  base::TaskGroup group;
  std::vector<Result<Reply>> results;
  int lost = 0;
  base::Epoch servers{}, clients{};
};

TEST_F(RpcTest, AnswersWithTheBodyAndWhoSaidIt) {
  EXPECT_FALSE(client->connected());
  Result<Reply> reply = call(kEcho, "hello");
  ASSERT_TRUE(reply) << reply.error().message();
  EXPECT_EQ(to_text(reply->body), "hello");
  EXPECT_EQ(reply->peer.incarnation, static_cast<base::Incarnation>(100));
  EXPECT_FALSE(reply->peer.proven);
  EXPECT_TRUE(client->connected());
  EXPECT_EQ(server->counters().requests, 1u);
  EXPECT_EQ(server->counters().connections, 1u);
}

TEST_F(RpcTest, EmptyBodiesAndLargeOnesPass) {
  EXPECT_EQ(call(kEcho, "")->body.size(), 0u);
  const Bytes large = pattern(kMaxControlPayload);
  EXPECT_EQ(call(kEcho, base::as_text(large))->body, large);
  Result<Reply> over = call(kEcho, std::string(kMaxControlPayload + 1, 'a'));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code(), Code::kInvalidArgument);
}

TEST_F(RpcTest, ErrorsComeBackAsTheHandlerGaveThem) {
  Result<Reply> reply = call(kGet, "x");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kNoSpace);
  EXPECT_EQ(reply.error().retry_after_ms(), 77u);
  EXPECT_EQ(reply.error().detail(), std::string(1024, 'x'));  // cut
  EXPECT_EQ(server->counters().failed_requests, 1u);

  reply = call(static_cast<Method>(0x7777), "x");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kNotSupported);
  EXPECT_NE(reply.error().detail().find("0x7777"), std::string::npos);
  EXPECT_TRUE(call(kEcho, "still there"));
}

TEST_F(RpcTest, ASlowHandlerDoesNotBlockOthers) {
  start(kWait, "slow");
  EXPECT_EQ(gate.waiting, 1);
  EXPECT_TRUE(call(kEcho, "fast"));
  gate.open();
  net.executor.run_ready();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(to_text(results[0]->body), "slow");
}

TEST_F(RpcTest, AThousandCallsInFlight) {
  std::vector<std::string> texts;
  for (int i = 0; i < 1000; ++i)
    texts.push_back("call " + std::to_string(i));
  for (const std::string& text : texts)
    start(kWait, text);
  EXPECT_EQ(gate.waiting, 1000);
  gate.open();
  net.executor.run_ready();
  ASSERT_EQ(results.size(), texts.size());
  std::vector<std::string> got;
  for (auto& result : results)
    got.push_back(to_text(result.value().body));
  std::sort(got.begin(), got.end());
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(got, texts);
}

TEST_F(RpcTest, ADeadlineEndsTheCallAndTheLateReplyIsDropped) {
  Result<Reply> reply = call(kWait, "never", milliseconds(50));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kDeadlineExceeded);
  gate.open();
  net.executor.run_ready();
  EXPECT_EQ(to_text(call(kEcho, "next")->body), "next");
  EXPECT_EQ(server->counters().connections, 1u);
}

TEST_F(RpcTest, ACallWithoutTimeLeftIsNotSent) {
  Result<Reply> reply = net.executor.run(client->call(kEcho, {}, {}));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(server->counters().accepted, 0u);
}

TEST_F(RpcTest, TheServersLimitAnswersBusy) {
  net.executor.run(stop_all());
  RpcServer::Options options;
  options.limits.max_requests_per_connection = 2;
  options.limits.max_bytes_per_connection = 1000;
  server = make_server(options);
  at = server.get();
  client = make_client();
  start(kWait, "a");
  start(kWait, "b");
  Result<Reply> third = call(kEcho, "c");
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kBusy);
  EXPECT_TRUE(third.error().retriable());
  EXPECT_GT(third.error().retry_after_ms(), 0u);
  gate.open();
  net.executor.run_ready();
  start(kWait, "12345678901234567890");
  EXPECT_EQ(call(kEcho, std::string(981, 'x')).error().code(), Code::kBusy);
  EXPECT_EQ(call(kEcho, std::string(1001, 'x')).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(call(kEcho, std::string(980, 'x')));
  EXPECT_EQ(server->counters().over_limit, 3u);
}

TEST_F(RpcTest, TheClientsLimitAnswersBusyHere) {
  net.executor.run(stop_all());
  server = make_server();
  at = server.get();
  RpcClient::Options options;
  options.max_requests_in_flight = 1;
  client = make_client(options);
  start(kWait, "a");
  EXPECT_EQ(call(kEcho, "b").error().code(), Code::kBusy);
  EXPECT_EQ(server->counters().requests, 1u);
}

TEST_F(RpcTest, TooManyConnectionsAreToldSo) {
  net.executor.run(stop_all());
  RpcServer::Options options;
  options.limits.max_connections = 1;
  server = make_server(options);
  at = server.get();
  client = make_client();
  start(kWait, "a");
  std::unique_ptr<RpcClient> first = std::move(client);
  client = make_client();
  Result<Reply> refused = call(kEcho, "b");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kBusy);
  EXPECT_GT(refused.error().retry_after_ms(), 0u);
  EXPECT_EQ(server->counters().over_limit, 1u);
  gate.open();
  net.executor.run(stop_all());
  client = std::move(first);
}

TEST_F(RpcTest, LosingTheConnectionEndsCallsAndTheNextOneReconnects) {
  client->on_disconnect([this] { ++lost; });
  start(kWait, "a");
  net.executor.post([this] { group.start(stop_server()); });
  net.executor.run_ready();
  ASSERT_EQ(results.size(), 1u);
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(results[0].error().code(), Code::kConnectionLost);
  EXPECT_EQ(gate.waiting, 1);  // stop() waits for the handler
  EXPECT_EQ(group.running(), 1u);
  gate.open();
  net.executor.run_ready();
  EXPECT_EQ(group.running(), 0u);
  EXPECT_EQ(lost, 1);
  EXPECT_FALSE(client->connected());

  at = nullptr;
  EXPECT_EQ(call(kEcho, "b").error().code(), Code::kUnreachable);
  server = make_server();
  at = server.get();
  EXPECT_EQ(to_text(call(kEcho, "c")->body), "c");
}

TEST_F(RpcTest, AttemptsKeepADistanceBoundedByTheDeadline) {
  at = nullptr;
  int attempts = 0;
  client = nullptr;
  RpcClient::Options options;
  options.identity = identity(1);
  client = RpcClient::create(
      net.env(),
      [this, &attempts](base::TimePoint) {
        ++attempts;
        return connect_pair(&net.executor, &at);
      },
      options);
  const base::TimePoint begin = net.executor.now();
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(call(kEcho, "x").error().code(), Code::kUnreachable);
  EXPECT_EQ(attempts, 20);
  EXPECT_GT(net.executor.now() - begin, seconds(3));  // backoff grew to 250..500 ms
  // A call that can't wait for the next attempt ends at its deadline.
  Result<Reply> reply = call(kEcho, "x", milliseconds(1));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kDeadlineExceeded);
  EXPECT_NE(reply.error().detail().find("the last attempt: "), std::string::npos);
  EXPECT_NE(reply.error().detail().find("no server"), std::string::npos) << "what it met";
}

TEST_F(RpcTest, OneAttemptServesAllWhoWait) {
  for (int i = 0; i < 10; ++i)
    start(kEcho, "x");
  net.executor.run_ready();
  EXPECT_EQ(results.size(), 10u);
  EXPECT_EQ(server->counters().accepted, 1u);
}

TEST_F(RpcTest, StopEndsWhatIsInFlight) {
  start(kWait, "a");
  net.executor.post([this] { group.start(stop_client()); });
  net.executor.run_ready();
  ASSERT_EQ(results.size(), 1u);
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(results[0].error().code(), Code::kCancelled);
  EXPECT_EQ(call(kEcho, "b").error().code(), Code::kCancelled);
}

TEST_F(RpcTest, ACancelEndsItsCallsAndNoOther) {
  os::CancelToken token;
  net.executor.post([&] {
    for (const std::string_view text : {"a", "b"})
      group.start(store_cancellable(text, &token));
  });
  start(kWait, "c");
  EXPECT_EQ(gate.waiting, 3);
  net.executor.post([&] { token.cancel(); });
  net.executor.run_ready();
  ASSERT_EQ(results.size(), 2u);
  for (const Result<Reply>& result : results)
    EXPECT_EQ(result.error().code(), Code::kCancelled);
  net.executor.post([&] { group.start(store_cancellable("d", &token)); });
  net.executor.run_ready();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[2].error().code(), Code::kCancelled) << "it is cancelled before it is sent";
  EXPECT_EQ(gate.waiting, 3);
  gate.open();
  net.executor.run_ready();
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(to_text(results[3]->body), "c") << "late replies are dropped, the connection goes on";
  EXPECT_EQ(server->counters().accepted, 1u);
}

TEST_F(RpcTest, AForgottenFailureIsNoReasonToWait) {
  at = nullptr;
  for (int i = 0; i < 8; ++i)
    EXPECT_FALSE(call(kEcho, "x"));
  at = server.get();
  start(kEcho, "y");
  EXPECT_TRUE(results.empty()) << "the next attempt keeps its distance";
  const base::TimePoint begin = net.executor.now();
  net.executor.post([this] { client->forget_failures(); });
  net.executor.run_ready();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_TRUE(results[0]);
  EXPECT_EQ(net.executor.now(), begin);
}

TEST_F(RpcTest, StopDuringTheBackoffDoesNotWaitForIt) {
  at = nullptr;
  EXPECT_FALSE(call(kEcho, "x"));
  start(kEcho, "y");
  const base::TimePoint begin = net.executor.now();
  net.executor.run(stop_all());
  EXPECT_EQ(net.executor.now(), begin);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].error().code(), Code::kCancelled);
}

TEST_F(RpcTest, TheServerHearsWhenAPeersLastConnectionGoes) {
  std::vector<std::string> gone;
  server->on_disconnect([&](const PeerIdentity& peer) { gone.push_back(peer.name); });
  std::unique_ptr<RpcClient> second = make_client();  // the same incarnation
  std::swap(client, second);
  ASSERT_TRUE(call(kEcho, "a"));
  std::swap(client, second);
  ASSERT_TRUE(call(kEcho, "a"));
  EXPECT_EQ(server->counters().connections, 2u);
  net.executor.run(stop_one(*second));
  net.executor.run_ready();
  EXPECT_TRUE(gone.empty());
  net.executor.run(stop_one(*client));
  net.executor.run_ready();
  EXPECT_EQ(gone, std::vector<std::string>{"node 1"});
}

TEST_F(RpcTest, ClientsLearnTheEpochAndServersBelieveNone) {
  net.executor.run(stop_all());
  servers = base::Epoch{5};
  clients = base::Epoch{3};
  RpcServer::Options server_options;
  server_options.epoch = &servers;
  server = make_server(server_options);
  at = server.get();
  RpcClient::Options client_options;
  client_options.epoch = &clients;
  client = make_client(client_options);

  Result<Reply> stale = call(kEcho, "a");
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code(), Code::kStaleEpoch);
  EXPECT_EQ(clients, base::Epoch{5});  // the refusal said it
  EXPECT_EQ(call(kEcho, "b")->epoch, base::Epoch{5});

  clients = base::Epoch{0xFFFFFFFF};  // anybody may claim anything
  EXPECT_TRUE(call(kEcho, "c"));
  EXPECT_EQ(servers, base::Epoch{5});

  clients = base::Epoch{0};  // knows of none: it is no follower of an old leader
  EXPECT_TRUE(call(kEcho, "d"));
  EXPECT_EQ(clients, base::Epoch{5});
}

TEST_F(RpcTest, TheDeadlineIsClampedByTheServer) {
  base::TimePoint seen{};
  server->handle(kPut, [&](ServerCall& call) {
    seen = call.deadline();
    return echo(call);
  });
  ASSERT_TRUE(call(kPut, "a", std::chrono::hours(1)));
  EXPECT_EQ(seen, net.in(std::chrono::minutes(10)));
  ASSERT_TRUE(call(kPut, "a", seconds(3)));
  EXPECT_EQ(seen, net.in(seconds(3)));
}

}  // namespace
}  // namespace mooncake::net
