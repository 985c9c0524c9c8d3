// Places at a server, before and after the hello, on the simulated network with a fake clock: who
// takes many is in the way of himself, who behaves finds one, and no call fails because its
// connection had to go.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "net/rpc_limits_testing.h"

namespace mooncake::net {
namespace {

using namespace testing;

class RpcPlacesTest : public RpcLimitsTest {
 protected:
  static RpcLimits places(std::size_t count) {
    RpcLimits limits;
    limits.max_connections = count;
    return limits;
  }
  // What came next; 0 for the end.
  Method next_method(Channel& channel) {
    const Result<FrameHeader> header = executor.run(channel.receive());
    return header ? static_cast<Method>(header->method) : Method{};
  }
  // A call whose outcome the test looks at later.
  Task<void> store(RpcClient* from, Method method, Bytes body, Code* code) {
    const Result<Reply> reply = co_await call(from, method, std::move(body), minutes(9));
    *code = reply ? Code::kOk : reply.error().code();
  }
  base::TaskGroup group;
};

// Before the hello is over.

TEST_F(RpcPlacesTest, SilentConnectionsMakeRoomForNewerOnes) {
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

TEST_F(RpcPlacesTest, SilentConnectionsTakeNoPlaceOfTheHonest) {
  RpcLimits limits = places(3);
  limits.max_greeting = 4;
  serve(limits);
  std::vector<std::unique_ptr<Channel>> silent;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j)
      silent.push_back(connect());
    EXPECT_EQ(code_of(client()), Code::kOk);  // the last of them at the cost of an idle one
    EXPECT_LE(counters().connections, 3u + 4u);
  }
  EXPECT_EQ(counters().over_limit, 0u);
  // Whoever says nothing costs nobody his connection, however many they are.
  for (int i = 0; i < 200; ++i)
    silent.push_back(connect());
  EXPECT_LE(counters().connections, 3u + 4u);
  EXPECT_TRUE(clients[1]->connected() && clients[2]->connected() && clients[3]->connected());
}

// After the hello.

TEST_F(RpcPlacesTest, WhoHasTheMostIdleConnectionsLosesTheOldest) {
  serve(places(4));
  RpcClient& one = client();
  EXPECT_EQ(code_of(one), Code::kOk);
  std::vector<std::unique_ptr<Channel>> many;
  for (int i = 0; i < 3; ++i) {
    executor.run_for(seconds(1));
    many.push_back(greeted());
  }
  ask(*many[0], kEcho, to_bytes("x"));  // now it is the youngest
  EXPECT_EQ(next_method(*many[0]), kEcho);
  RpcClient& two = client();
  EXPECT_EQ(code_of(two), Code::kOk);
  EXPECT_EQ(counters().over_limit, 0u);
  EXPECT_EQ(counters().crowded_out, 1u);
  EXPECT_EQ(next_method(*many[1]), Method::kGoodbye);
  // Now he has no more than others, and the idlest of all is closed.
  EXPECT_EQ(code_of(client()), Code::kOk);
  EXPECT_EQ(next_method(*many[2]), Method::kGoodbye);
  EXPECT_TRUE(one.connected() && two.connected());
  EXPECT_EQ(code_of(client()), Code::kOk);
  executor.run_for(milliseconds(1));
  EXPECT_FALSE(one.connected());
  EXPECT_TRUE(two.connected());
  EXPECT_EQ(code_of(one), Code::kOk);
}

TEST_F(RpcPlacesTest, BusyConnectionsStay) {
  serve(places(3));
  Code code = Code::kInternal;
  RpcClient& waits = client();
  executor.post([&] { group.start(store(&waits, kWait, to_bytes("10"), &code)); });
  executor.run_for(milliseconds(10));
  const auto reads_nothing = greeted(1), sends_slowly = greeted(2);
  ask_for(*reads_nothing, kGet, 20, 100'000);
  ask(*sends_slowly, kPut, to_bytes("x"), kMore);
  executor.run_for(milliseconds(10));
  RpcClient& late = client();
  EXPECT_EQ(code_of(late), Code::kBusy);
  EXPECT_EQ(counters().over_limit, 1u);
  EXPECT_EQ(counters().crowded_out, 0u);
  open_doors();
  executor.run_for(milliseconds(10));
  EXPECT_EQ(code, Code::kOk);
  EXPECT_EQ(code_of(late), Code::kOk);
  EXPECT_EQ(counters().crowded_out, 1u);
  EXPECT_FALSE(reads_nothing->closed() || sends_slowly->closed());
  EXPECT_FALSE(waits.connected());
}

TEST_F(RpcPlacesTest, WhoDoesNotLeaveIsClosedAndNotServed) {
  serve(places(1));
  std::vector<std::unique_ptr<Channel>> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back(greeted());
    EXPECT_LE(counters().connections, 1u + 64u);
  }
  EXPECT_EQ(counters().crowded_out, 199u);
  executor.run_for(milliseconds(1));
  EXPECT_EQ(next_method(*many[198]), Method::kGoodbye);
  ask(*many[198], kEcho, to_bytes("still here"));
  EXPECT_EQ(next_method(*many[198]), Method{});
  EXPECT_EQ(counters().requests, 0u);
  executor.run_for(seconds(6));
  EXPECT_EQ(counters().connections, 1u);
  EXPECT_FALSE(many[199]->closed());
}

// What the handler of kPut takes in the next test: more than is copied before it leaves.
constexpr std::size_t kLarge = 300'000;

Task<Result<Bytes>> take_large(ServerCall& call) {
  Bytes bytes;
  VectorSink sink(bytes);
  MC_CO_CHECK(co_await call.receive_data(sink, kLarge));
  co_return bytes;
}

// Its connection is the idlest again and again, at the moment of a call.
TEST_F(RpcPlacesTest, NoCallFailsBecauseItsConnectionHadToGo) {
  serve(places(3));
  server->handle(kPut, take_large);
  RpcClient& honest = client();
  const Bytes data = pattern(kLarge);
  const base::ConstBuffer part(data);
  std::vector<std::unique_ptr<Channel>> many;
  std::uint64_t incarnation = 1000;
  const auto crowd = [&](std::uint64_t self) -> Task<void> {
    Result<std::unique_ptr<Channel>> channel =
        co_await away.network.connect(at, executor.now() + seconds(1));
    const Identity identity_of_it = identity(self);
    (void)co_await greet(away.env(), **channel, identity_of_it, "x", executor.now() + seconds(1));
    many.push_back(*std::move(channel));
  };
  const auto put = [&]() -> Task<Result<Reply>> {
    CallOptions options;
    options.deadline = executor.now() + seconds(10);
    options.data = {&part, 1};
    co_return co_await honest.call(kPut, {}, options);
  };
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    EXPECT_EQ(code_of(honest), Code::kOk) << round;
    many.clear();
    executor.post([&] {
      for (int i = 0; i < 3; ++i)
        group.start(crowd(++incarnation));
    });
    executor.run_for(std::chrono::microseconds(random.below(1500)));
    if (round % 2 == 0) {
      EXPECT_EQ(code_of(honest), Code::kOk) << round;
    } else {
      const Result<Reply> reply = executor.run(put());
      EXPECT_TRUE(reply && reply->body == data) << round;
    }
    executor.run_for(seconds(1));
  }
  EXPECT_GT(counters().crowded_out, 300u);
}

// A server that always says goodbye.
TEST_F(RpcPlacesTest, ACallGoesOutAgainOnlySoOften) {
  serve();
  std::unique_ptr<Listener> listener = *home.network.listen(Address("server", 2));
  std::vector<std::unique_ptr<Channel>> dismissed;
  const auto dismiss_all = [&]() -> Task<void> {
    const Identity self = identity(100);
    for (;;) {
      Result<std::unique_ptr<Channel>> channel = co_await listener->accept();
      if (!channel) co_return;
      const base::TimePoint deadline = executor.now() + seconds(1);
      (void)co_await receive_greeting(home.env(), **channel, self, deadline);
      FrameHeader goodbye;
      goodbye.method = static_cast<std::uint16_t>(Method::kGoodbye);
      goodbye.flags = kReply;
      EXPECT_TRUE((*channel)->send(goodbye, {}));
      dismissed.push_back(*std::move(channel));
    }
  };
  executor.post([&] { group.start(dismiss_all()); });
  at = listener->address();
  EXPECT_EQ(code_of(client()), Code::kConnectionLost);
  EXPECT_EQ(dismissed.size(), 4u);
  listener->close();
  executor.run_for(milliseconds(1));
}

// Descriptors.

// A network on which a server has no descriptor for somebody who waits, so many times.
class ShortNetwork final : public Network {
 public:
  explicit ShortNetwork(Network& inner) : inner_(inner) {}
  int shortage = 0;

  Task<Result<std::unique_ptr<Channel>>> connect(Address to, base::TimePoint deadline) override {
    return inner_.connect(std::move(to), deadline);
  }
  Result<std::unique_ptr<Listener>> listen(const Address& at) override {
    MC_TRY(std::unique_ptr<Listener> inner, inner_.listen(at));
    return std::make_unique<ShortListener>(std::move(inner), shortage);
  }

 private:
  class ShortListener final : public Listener {
   public:
    ShortListener(std::unique_ptr<Listener> inner, int& shortage)
        : inner_(std::move(inner)), shortage_(shortage) {}
    Task<Result<std::unique_ptr<Channel>>> accept() override {
      if (!waits_) {
        MC_CO_TRY(waits_, co_await inner_->accept());
      }
      if (shortage_ == 0) co_return std::move(waits_);
      --shortage_;
      co_return fail(Code::kBusy, "accept: Too many open files");
    }
    const Address& address() const override { return inner_->address(); }
    void close() override { inner_->close(); }

   private:
    const std::unique_ptr<Listener> inner_;
    std::unique_ptr<Channel> waits_;
    int& shortage_;
  };

  Network& inner_;
};

class DescriptorsTest : public RpcPlacesTest {
 protected:
  os::Env server_env() override { return {home.host, home.random, network, home.disk}; }
  ShortNetwork network{home.network};
};

TEST_F(DescriptorsTest, TheOldestThatSaysNoHelloMakesRoom) {
  serve();
  RpcClient& idle = client();
  EXPECT_EQ(code_of(idle), Code::kOk);
  std::vector<std::unique_ptr<Channel>> silent;
  for (int i = 0; i < 4; ++i)
    silent.push_back(connect());
  executor.run_for(milliseconds(60));
  network.shortage = 2;
  const base::TimePoint began = executor.now();
  EXPECT_EQ(code_of(client()), Code::kOk);
  EXPECT_LT(executor.now() - began, milliseconds(10));
  EXPECT_EQ(network.shortage, 0);
  EXPECT_TRUE(silent[0]->closed() && silent[1]->closed());
  EXPECT_FALSE(silent[2]->closed() || silent[3]->closed());
  EXPECT_TRUE(idle.connected());
  EXPECT_EQ(counters().crowded_out, 2u);
}

TEST_F(DescriptorsTest, WhoHasJustComeIsLeftToSayHisHello) {
  serve();
  std::vector<std::unique_ptr<Channel>> silent;
  for (int i = 0; i < 4; ++i)
    silent.push_back(connect());
  network.shortage = 1;
  RpcClient& one = client();
  EXPECT_EQ(code_of(one), Code::kOk);
  EXPECT_EQ(counters().crowded_out, 0u);
}

TEST_F(DescriptorsTest, ElseTheIdlestDoes) {
  serve();
  RpcClient& one = client();
  EXPECT_EQ(code_of(one), Code::kOk);
  executor.run_for(seconds(1));
  const auto stays = greeted(9);
  // In the first pause somebody leaves who was told so; in the second one who was doesn't; then he
  // is closed.
  network.shortage = 3;
  RpcClient& two = client();
  EXPECT_EQ(code_of(two), Code::kOk);
  EXPECT_EQ(network.shortage, 0);
  EXPECT_FALSE(one.connected());
  EXPECT_EQ(next_method(*stays), Method::kGoodbye);
  EXPECT_EQ(next_method(*stays), Method{});
  EXPECT_EQ(counters().crowded_out, 2u);
  EXPECT_EQ(code_of(one), Code::kOk);
}

TEST_F(DescriptorsTest, AShortageIsToldOnceAMinute) {
  serve();
  network.shortage = 1'000'000;
  ::testing::internal::CaptureStderr();
  const auto last = connect();
  executor.run_for(minutes(5) + seconds(1));
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 6) << lines;
  EXPECT_NE(lines.find("on server:1: accept: Too many open files"), std::string::npos) << lines;
  EXPECT_GE(network.shortage, 1'000'000 - 21 * 301);  // it isn't asked without a pause
  network.shortage = 0;
  executor.run_for(seconds(1));
  EXPECT_EQ(code_of(client()), Code::kOk);
}

}  // namespace
}  // namespace mooncake::net
