// What one server grants all its peers together, on the simulated network with a fake clock: memory
// for requests and replies, time without a request, and places before the hello. Whoever takes too
// much loses his connection; who behaves notices nothing.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/budget.h"
#include "net/net_testing.h"

namespace mooncake::net {
namespace {

using namespace testing;
using std::chrono::hours;
using std::chrono::minutes;

constexpr std::size_t kMiB = 1u << 20;

// A process of the simulated cluster, which may be stopped.
struct Node {
  Node(os::SimExecutor& executor, SimWorld& world, const std::string& name)
      : host(executor), network(world.host(name, host)) {}
  os::SimHost host;
  base::Random random{7};
  os::FakeDisk disk;
  Network& network;
  os::Env env() { return {host, random, network, disk}; }
};

class RpcLimitsTest : public ::testing::Test {
 protected:
  void serve(RpcLimits limits = {}) {
    RpcServer::Options options;
    options.identity = identity(100);
    options.limits = limits;
    options.budget = &budget;
    max_bytes = limits.max_bytes;
    server = RpcServer::create(home.env(), options);
    server->handle(kEcho, echo);
    server->handle(kPut, take);
    server->handle(kGet, [this](ServerCall& call) { return give(call); });
    server->handle(kWait, [this](ServerCall& call) { return wait(call); });
    at = *server->listen(Address("server", 1));
  }
  // Body: size of the reply.
  Task<Result<Bytes>> give(ServerCall& call) {
    EXPECT_LE(server->counters().held_bytes, max_bytes);
    EXPECT_GE(budget.used(base::MemoryUse::kReceive), call.body().size());
    co_return pattern(std::stoull(std::string(base::as_text(call.body()))));
  }
  // The same, when the test opens the doors.
  Task<Result<Bytes>> wait(ServerCall& call) {
    doors.push_back(std::make_unique<os::Completion<bool>>(home.host));
    os::Completion<bool>& door = *doors.back();
    co_await door;
    co_return co_await give(call);
  }
  static Task<Result<Bytes>> take(ServerCall& call) {
    Bytes bytes;
    VectorSink sink(bytes);
    MC_CO_CHECK(co_await call.receive_data(sink, 1));
    co_return bytes;
  }

  // A connection in the hands of the test, which has greeted or not.
  std::unique_ptr<Channel> connect() {
    return *executor.run(away.network.connect(at, executor.now() + seconds(1)));
  }
  std::unique_ptr<Channel> greeted(std::uint64_t incarnation = 9) {
    std::unique_ptr<Channel> channel = connect();
    const Identity self = identity(incarnation);
    EXPECT_TRUE(executor.run(greet(away.env(), *channel, self, "x", executor.now() + seconds(1))));
    return channel;
  }
  void ask(Channel& channel, Method method, base::ConstBuffer body, std::uint16_t flags = 0) {
    FrameHeader header;
    header.method = static_cast<std::uint16_t>(method);
    header.request_id = ++last_id;
    header.flags = flags;
    header.deadline_us = 600'000'000;
    EXPECT_TRUE(channel.send(header, {&body, 1}));
  }
  void ask_for(Channel& channel, Method method, int count, std::size_t size) {
    for (int i = 0; i < count; ++i)
      ask(channel, method, to_bytes(std::to_string(size)));
    executor.run_for(milliseconds(100));
  }

  void send_data(Channel& channel, std::uint32_t id) {
    FrameHeader header;
    header.request_id = id;
    header.flags = kData;
    const base::ConstBuffer byte = base::as_bytes("x");
    EXPECT_TRUE(channel.send(header, {&byte, 1}));
  }

  RpcClient& client(RpcClient::Options options = {}) {
    options.identity = identity(200 + clients.size());
    clients.push_back(RpcClient::create(away.env(), at, std::move(options)));
    return *clients.back();
  }
  Task<Result<Reply>> call(RpcClient* from, Method method, Bytes body, base::Duration within) {
    CallOptions options;
    options.deadline = executor.now() + within;
    co_return co_await from->call(method, body, options);
  }
  Code code_of(RpcClient& from, std::size_t size = 5, Method method = kEcho) {
    const Result<Reply> reply =
        executor.run(call(&from, method, Bytes(size, std::byte{'1'}), minutes(9)));
    return reply ? Code::kOk : reply.error().code();
  }
  void open_doors() {
    for (auto& door : doors)
      door->set(true);
  }
  RpcServer::Counters counters() { return server->counters(); }

  void TearDown() override {
    open_doors();
    executor.run(stop_all());
    executor.run_ready();
    server.reset();
    EXPECT_EQ(budget.used(base::MemoryUse::kReceive), 0u);
  }
  Task<void> stop_all() {
    for (auto& one : clients)
      co_await one->stop();
    co_await server->stop();
  }

  os::SimExecutor executor{1};
  base::Random random{7};
  SimWorld world{executor, random};
  Node home{executor, world, "server"}, away{executor, world, "client"};
  base::Budget budget{64 * kMiB};
  std::vector<std::unique_ptr<os::Completion<bool>>> doors;  // of the requests that wait
  Address at;
  std::size_t max_bytes = 0;
  std::unique_ptr<RpcServer> server;
  std::vector<std::unique_ptr<RpcClient>> clients;
  std::uint32_t last_id = 0;
};

RpcLimits small_memory() {
  RpcLimits limits;
  limits.max_bytes = 4 * kMiB;
  limits.max_connections = 8;  // a share of 256 KiB
  return limits;
}

TEST_F(RpcLimitsTest, UnreadRepliesOfAllConnectionsAreBounded) {
  serve(small_memory());
  std::vector<std::unique_ptr<Channel>> greedy;
  for (int i = 0; i < 3; ++i) {
    greedy.push_back(greeted());
    ask_for(*greedy.back(), kGet, 20, 100'000);
  }
  EXPECT_GT(counters().over_limit, 0u);  // told that the server is busy
  EXPECT_GT(counters().held_bytes, 2 * kMiB - 200'000);
  EXPECT_LT(counters().held_bytes, 3 * kMiB);

  RpcClient& honest = client();
  EXPECT_EQ(code_of(honest, 200'000), Code::kOk);  // within its share
  EXPECT_EQ(code_of(honest, 300'000), Code::kBusy);
  EXPECT_EQ(counters().connections, 4u);
  executor.run_for(seconds(6));
  EXPECT_EQ(code_of(honest, 300'000), Code::kOk);  // at the cost of the greediest
  EXPECT_EQ(counters().greedy, 1u);
  EXPECT_EQ(counters().connections, 3u);
}

// Others have taken the budget: everybody still has his share, and no connection is closed for what
// others hold.
TEST_F(RpcLimitsTest, MemoryIsShortWhenTheBudgetIs) {
  serve(small_memory());
  RpcClient& one = client();
  EXPECT_EQ(code_of(one, 300'000), Code::kOk);
  EXPECT_LE(budget.used(base::MemoryUse::kReceive), 400'000u) << "the reply, until it is counted";
  budget.add(base::MemoryUse::kBuffers, 64 * kMiB - 1000);
  EXPECT_EQ(code_of(one, 200'000), Code::kOk);
  EXPECT_EQ(code_of(one, 300'000), Code::kBusy);
  executor.run_for(seconds(6));
  EXPECT_EQ(code_of(one, 300'000), Code::kBusy);
  EXPECT_EQ(counters().greedy, 0u);
  budget.give_back(base::MemoryUse::kBuffers, 64 * kMiB - 1000);
  EXPECT_EQ(code_of(one, 300'000), Code::kOk);
}

TEST_F(RpcLimitsTest, WhatHasBeenReadDoesNotCount) {
  serve(small_memory());
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(code_of(i == 0 ? client() : *clients[0], 300'000), Code::kOk);
  EXPECT_EQ(counters().held_bytes, 0u);
}

// Memory is short again and again, and nobody is to blame.
TEST_F(RpcLimitsTest, WhoIsOnlyBusyIsNotClosed) {
  serve(small_memory());
  const auto one = greeted(), two = greeted();
  for (int i = 0; i < 10; ++i) {
    const std::uint32_t first = last_id + 1;
    for (int j = 0; j < 4; ++j) {
      ask(*one, kPut, Bytes(400'000), kMore);
      ask(*two, kPut, Bytes(400'000), kMore);
    }
    executor.run_for(seconds(1));
    for (std::uint32_t id = first; id <= last_id; ++id)
      send_data(id % 2 == first % 2 ? *one : *two, id);
    executor.run_for(seconds(1));
  }
  EXPECT_EQ(counters().over_limit, 30u);
  EXPECT_EQ(counters().greedy, 0u);
  EXPECT_EQ(counters().held_bytes, 0u);
}

TEST_F(RpcLimitsTest, RepliesToRequestsThatWereTakenAreBounded) {
  serve(small_memory());
  std::vector<std::unique_ptr<Channel>> greedy;
  for (int i = 0; i < 3; ++i) {
    greedy.push_back(greeted());
    ask_for(*greedy.back(), kWait, 40, 100'000);
  }
  const auto modest = greeted();
  ask_for(*modest, kWait, 1, 100'000);
  EXPECT_EQ(counters().over_limit, 0u);
  open_doors();
  executor.run_for(seconds(1));
  EXPECT_GE(counters().greedy, 1u);
  EXPECT_LE(counters().held_bytes, max_bytes);
  EXPECT_FALSE(modest->closed());
  EXPECT_EQ(counters().stalled, 0u);
}

TEST_F(RpcLimitsTest, RequestsThatWaitForTheirDataAreBounded) {
  serve(small_memory());
  const auto greedy = greeted();
  for (int i = 0; i < 10; ++i)
    ask(*greedy, kPut, Bytes(400'000), kMore);
  executor.run_for(seconds(1));
  EXPECT_EQ(counters().over_limit, 5u);
  EXPECT_GT(counters().held_bytes, 3 * kMiB / 2);
  RpcClient& honest = client();
  EXPECT_EQ(code_of(honest, 300'000), Code::kBusy);
  executor.run_for(seconds(6));
  (void)code_of(honest, 300'000);  // finds out who is in the way
  EXPECT_EQ(counters().greedy, 1u);
  EXPECT_EQ(code_of(honest, 300'000), Code::kOk);
  EXPECT_EQ(counters().held_bytes, 0u);
}

TEST_F(RpcLimitsTest, APeerThatReadsNothingIsLeft) {
  serve();
  const auto silent = greeted();
  ask_for(*silent, kGet, 20, 100'000);
  executor.run_for(seconds(29));
  EXPECT_EQ(counters().connections, 1u);
  executor.run_for(seconds(2));
  EXPECT_EQ(counters().connections, 0u);
  EXPECT_EQ(counters().stalled, 1u);
  EXPECT_EQ(counters().greedy, 0u);
}

// Bodies arrive in drops: each in time, all of them never.
class Dripping final : public WrappedChannel {
 public:
  Dripping(std::unique_ptr<Channel> inner_, os::Executor& executor)
      : WrappedChannel(std::move(inner_)), executor_(executor) {}
  Task<Result<void>> receive_payload(PayloadSink& sink, std::size_t size) override {
    for (; size > kDry; --size) {
      MC_CO_CHECK(co_await inner->receive_payload(sink, 1));
      co_await executor_.sleep_for(seconds(20));
    }
    co_return co_await inner->receive_payload(sink, size);
  }

 private:
  static constexpr std::size_t kDry = 1000;  // more than a hello
  os::Executor& executor_;
};

TEST_F(RpcLimitsTest, ABodyMustArriveInTheTimeOfALongRequest) {
  serve();
  auto [mine, theirs] = make_channel_pair(home.host);
  server->serve(std::make_unique<Dripping>(std::move(theirs), home.host));
  const Identity self = identity(9);
  ASSERT_TRUE(executor.run(greet(home.env(), *mine, self, "x", executor.now() + seconds(1))));
  ask(*mine, kEcho, Bytes(100'000));
  executor.run_for(minutes(9));
  EXPECT_EQ(counters().connections, 1u);
  EXPECT_GT(counters().held_bytes, 100'000u);
  executor.run_for(minutes(3));
  EXPECT_EQ(counters().connections, 0u);
  EXPECT_EQ(counters().stalled, 1u);
  EXPECT_EQ(counters().held_bytes, 0u);
}

// Idle connections.

TEST_F(RpcLimitsTest, AClientLeavesAnIdleConnectionBeforeTheServerDoes) {
  serve();
  RpcClient& one = client();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    EXPECT_EQ(code_of(one), Code::kOk);
    EXPECT_EQ(counters().accepted, round);
    executor.run_for(minutes(4));
    EXPECT_TRUE(one.connected());
    EXPECT_EQ(code_of(one), Code::kOk);
    executor.run_for(minutes(4));
    EXPECT_TRUE(one.connected());
    executor.run_for(minutes(2));
    EXPECT_FALSE(one.connected());
    EXPECT_EQ(counters().connections, 0u);
  }
  EXPECT_EQ(counters().idle, 0u);
}

TEST_F(RpcLimitsTest, AServerClosesIdleConnections) {
  serve();
  RpcClient::Options options;
  options.idle_timeout = hours(24);
  RpcClient& one = client(options);
  EXPECT_EQ(code_of(one), Code::kOk);
  executor.run_for(minutes(9));
  EXPECT_TRUE(one.connected());
  executor.run_for(minutes(3));
  EXPECT_FALSE(one.connected());
  EXPECT_EQ(counters().idle, 1u);
  EXPECT_EQ(counters().connections, 0u);
  EXPECT_EQ(code_of(one), Code::kOk);  // connects again
}

TEST_F(RpcLimitsTest, AConnectionWithARequestIsNotIdle) {
  RpcLimits limits;
  limits.idle_timeout = minutes(4);
  limits.max_deadline = hours(1);
  serve(limits);
  RpcClient::Options options;
  options.idle_timeout = minutes(2);
  RpcClient& one = client(options);
  base::TaskGroup group;
  Code code = Code::kInternal;
  const auto ask_long = [&]() -> Task<void> {
    const Result<Reply> reply = co_await call(&one, kWait, to_bytes("10"), minutes(50));
    code = reply ? Code::kOk : reply.error().code();
  };
  executor.post([&] { group.start(ask_long()); });
  executor.run_for(minutes(40));
  open_doors();
  executor.run_for(seconds(1));
  EXPECT_EQ(code, Code::kOk);
  EXPECT_EQ(counters().accepted, 1u);
  executor.run_for(minutes(1));
  EXPECT_TRUE(one.connected());
  executor.run_for(minutes(2));
  EXPECT_FALSE(one.connected());
}

// The server has left meanwhile; the client's own timer comes too late.
TEST_F(RpcLimitsTest, AClientThatWasStoppedFailsNoCallForIt) {
  serve();
  RpcClient& one = client();
  EXPECT_EQ(code_of(one), Code::kOk);
  away.host.freeze();
  executor.run_for(minutes(20));
  EXPECT_EQ(counters().idle, 1u);
  EXPECT_TRUE(one.connected());  // as far as it knows
  base::TaskGroup group;
  Code code = Code::kInternal;
  const auto ask_early = [&]() -> Task<void> {
    const Result<Reply> reply = co_await call(&one, kEcho, to_bytes("x"), seconds(1));
    code = reply ? Code::kOk : reply.error().code();
  };
  executor.post([&] {
    group.start(ask_early());
    away.host.thaw();
  });
  executor.run_for(seconds(1));
  EXPECT_EQ(code, Code::kOk);
}

// Connections that say nothing.

TEST_F(RpcLimitsTest, SilentConnectionsMakeRoomForNewerOnes) {
  RpcLimits limits;
  limits.max_greeting = 4;
  serve(limits);
  std::vector<std::unique_ptr<Channel>> silent;
  for (int i = 0; i < 10; ++i)
    silent.push_back(connect());
  executor.run_for(milliseconds(1));
  EXPECT_EQ(counters().crowded_out, 6u);
  EXPECT_EQ(counters().connections, 4u);
  EXPECT_TRUE(silent[0]->closed() && silent[5]->closed());
  EXPECT_FALSE(silent[6]->closed() || silent[9]->closed());
  EXPECT_EQ(code_of(client()), Code::kOk);
  EXPECT_EQ(counters().crowded_out, 7u);
  executor.run_for(seconds(6));
  EXPECT_EQ(counters().connections, 1u);  // the hello's deadline
  EXPECT_EQ(counters().malformed, 3u);
}

TEST_F(RpcLimitsTest, SilentConnectionsTakeNoPlaceOfTheHonest) {
  RpcLimits limits;
  limits.max_connections = 3;
  serve(limits);
  std::vector<std::unique_ptr<Channel>> silent;
  for (int i = 0; i < 3; ++i) {
    silent.push_back(connect());
    silent.push_back(connect());
    silent.push_back(connect());
    EXPECT_EQ(code_of(client()), Code::kOk);
    EXPECT_LE(counters().connections, 3u);
  }
  EXPECT_EQ(counters().over_limit, 0u);
  // Now all places are taken, and who comes is told so, whatever the silent do.
  for (int i = 0; i < 200; ++i)
    silent.push_back(connect());
  EXPECT_EQ(code_of(client()), Code::kBusy);
  EXPECT_LT(counters().connections, 100u);
  EXPECT_EQ(code_of(*clients.front()), Code::kOk);
}

}  // namespace
}  // namespace mooncake::net
