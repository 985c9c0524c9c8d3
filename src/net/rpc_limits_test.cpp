// What one server grants all its peers together, on the simulated network with a fake clock: memory
// for requests and replies, and time without a request. Whoever takes too much loses his
// connection; who behaves notices nothing.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/rpc_limits_testing.h"

namespace mooncake::net {
namespace {

using namespace testing;
using std::chrono::hours;

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

}  // namespace
}  // namespace mooncake::net
