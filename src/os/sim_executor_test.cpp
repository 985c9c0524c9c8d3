// Proves: the simulation is deterministic for a seed and, shuffled, explores other orders for other
// seeds; time moves only when nothing is ready; timers run in order of their time and never after a
// successful cancel(), against a sorted model; a frozen host does nothing until it thaws, and a
// dead one nothing ever.
#include "os/sim_executor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace mooncake::os {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string order_of(std::uint64_t seed, bool shuffle) {
  SimExecutor executor(seed, shuffle);
  std::string order;
  for (char c = 'a'; c <= 'h'; ++c) {
    executor.post([&executor, &order, c] {
      order += c;
      executor.post([&order, c] { order += static_cast<char>(c - 'a' + 'A'); });
    });
  }
  executor.run_ready();
  return order;
}

TEST(SimExecutor, KeepsTheOrderOfPostingUnlessShuffled) {
  EXPECT_EQ(order_of(1, false), "abcdefghABCDEFGH");
  EXPECT_EQ(order_of(2, false), "abcdefghABCDEFGH");
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::string order = order_of(seed, true);
    EXPECT_EQ(order, order_of(seed, true)) << "seed " << seed;
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 45u);
}

TEST(SimExecutor, TimeMovesOnlyWhenNothingIsReady) {
  SimExecutor executor(1);
  std::vector<std::string> log;
  const auto say = [&](const char* what) {
    log.push_back(what + std::to_string(executor.now().time_since_epoch() / seconds(1)));
  };
  executor.run_at(executor.now() + seconds(2), [&] {
    say("timer ");
    executor.post([&] { say("posted "); });
  });
  executor.run_at(executor.now() + seconds(2), [&] { say("second "); });
  executor.post([&] { say("ready "); });
  EXPECT_EQ(executor.run_ready(), 1u);
  executor.run_for(seconds(5));
  EXPECT_EQ(log, (std::vector<std::string>{"ready 0", "timer 2", "second 2", "posted 2"}));
  EXPECT_EQ(executor.now().time_since_epoch(), seconds(5));
  EXPECT_EQ(executor.clock().unix_seconds(), SimExecutor(1).clock().unix_seconds() + 5);
}

TEST(SimExecutor, RunUntilStopsForItsReasons) {
  SimExecutor executor(1);
  const TimePoint start = executor.now();
  bool done = false;
  executor.run_at(start + seconds(3), [&] { done = true; });
  EXPECT_FALSE(executor.run_until([&] { return done; }, start + seconds(2)));
  EXPECT_EQ(executor.now(), start + seconds(2));
  EXPECT_TRUE(executor.run_until([&] { return done; }, start + seconds(9)));
  EXPECT_EQ(executor.now(), start + seconds(3));
  EXPECT_FALSE(executor.run_until([] { return false; }, start + seconds(9)));
  EXPECT_EQ(executor.now(), start + seconds(3)) << "nothing is left: time has no reason to move";
  EXPECT_FALSE(executor.run_until([] { return false; }, start)) << "time never goes back";
  EXPECT_EQ(executor.now(), start + seconds(3));
}

TEST(SimExecutor, ATimerThatIsDueCanStillBeCancelled) {
  SimExecutor executor(1);
  bool ran = false;
  TimerId second = TimerId::kNone;
  executor.run_at(executor.now() + seconds(1), [&] { EXPECT_TRUE(executor.cancel(second)); });
  second = executor.run_at(executor.now() + seconds(1), [&] { ran = true; });
  executor.run_for(seconds(2));
  EXPECT_FALSE(ran);
  EXPECT_FALSE(executor.cancel(second));
  EXPECT_FALSE(executor.cancel(TimerId::kNone));
}

TEST(SimExecutor, KnowsWhetherItRuns) {
  SimExecutor executor(1);
  EXPECT_FALSE(executor.on_this_thread());
  executor.post([&] { EXPECT_TRUE(executor.on_this_thread()); });
  EXPECT_EQ(executor.run_ready(), 1u);
  EXPECT_FALSE(executor.on_this_thread());
}

TEST(SimExecutor, DropsWhatIsLeft) {
  const auto token = std::make_shared<int>(1);
  {
    SimExecutor executor(1);
    executor.post([token] { FAIL(); });
    executor.run_at(executor.now() + seconds(1), [token] { FAIL(); });
    EXPECT_EQ(token.use_count(), 3);
  }
  EXPECT_EQ(token.use_count(), 1);
}

Task<void> wait_for_ever(SimExecutor& executor) {
  for (;;)
    co_await executor.sleep_for(std::chrono::minutes(1));
}
Task<int> answer(SimExecutor& executor) {
  co_await executor.sleep_for(seconds(1));
  co_return 42;
}
Task<void> nothing() { co_return; }

TEST(SimExecutor, RunsATaskToItsEnd) {
  SimExecutor executor(1);
  EXPECT_EQ(executor.run(answer(executor)), 42);
  EXPECT_EQ(executor.now().time_since_epoch(), seconds(1));
  executor.run(nothing());
}

TEST(SimExecutorDeathTest, ATaskThatDoesNotEndIsABug) {
  EXPECT_DEATH(
      {
        SimExecutor executor(1);
        executor.run(wait_for_ever(executor));
      },
      "the task didn't end within its limit");
}

// Random timers and cancels; the model is a sorted list.
RC_GTEST_PROP(SimExecutor, TimersRunInOrderOfTheirTime, ()) {
  const bool shuffle = *rc::gen::arbitrary<bool>();
  SimExecutor executor(*rc::gen::arbitrary<std::uint64_t>(), shuffle);
  const auto times = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20));
  std::vector<int> ran;
  std::vector<TimerId> timers;
  std::vector<int> model;
  const TimePoint start = executor.now();
  for (const int time : times) {
    timers.push_back(executor.run_at(start + milliseconds(time), [&ran, &executor, start, time] {
      RC_ASSERT(executor.now() == start + milliseconds(time));
      ran.push_back(time);
    }));
  }
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (*rc::gen::arbitrary<bool>()) {
      RC_ASSERT(executor.cancel(timers[i]));
      RC_ASSERT(!executor.cancel(timers[i]));
    } else {
      model.push_back(times[i]);
    }
  }
  executor.run_for(milliseconds(20));
  std::sort(model.begin(), model.end());
  RC_ASSERT(ran == model);
}

TEST(SimHost, FrozenItKeepsEverythingForLater) {
  SimExecutor world(1);
  SimHost host(world);
  std::string log;
  host.post([&] { log += 'a'; });
  world.run_ready();
  host.freeze();
  EXPECT_TRUE(host.frozen());
  host.post([&] { log += 'b'; });
  host.run_at(host.now() + seconds(2), [&] { log += 'd'; });
  host.run_at(host.now() + seconds(1), [&] { log += 'c'; });
  host.run_at(host.now() + seconds(9), [&] { log += 'e'; });
  world.run_for(seconds(3));
  EXPECT_EQ(log, "a");
  host.thaw();
  EXPECT_EQ(log, "a") << "from the queue, not from inside thaw()";
  world.run_ready();
  EXPECT_EQ(log, "abcd");
  world.run_for(seconds(6));
  EXPECT_EQ(log, "abcde");
}

TEST(SimHost, ATimerThatCameDueWhileFrozenCanStillBeCancelled) {
  SimExecutor world(1);
  SimHost host(world);
  bool ran = false;
  TimerId later = TimerId::kNone;
  host.run_at(host.now() + seconds(1), [&] { EXPECT_TRUE(host.cancel(later)); });
  later = host.run_at(host.now() + seconds(2), [&] { ran = true; });
  host.freeze();
  world.run_for(seconds(3));
  host.thaw();
  world.run_ready();
  EXPECT_FALSE(ran);
  EXPECT_FALSE(host.cancel(later));
  EXPECT_FALSE(host.cancel(TimerId::kNone));
}

TEST(SimHost, CancelsTimersToCome) {
  SimExecutor world(1);
  SimHost host(world);
  const TimerId timer = host.run_at(host.now() + seconds(1), [] { FAIL(); });
  EXPECT_TRUE(host.cancel(timer));
  EXPECT_FALSE(host.cancel(timer));
  world.run_for(seconds(2));
}

TEST(SimHost, FrozenAgainBeforeItsTurnItGoesOnKeeping) {
  SimExecutor world(1);
  SimHost host(world);
  std::string log;
  host.freeze();
  host.post([&] { log += 'a'; });
  world.run_ready();
  host.thaw();
  host.freeze();
  world.run_ready();
  EXPECT_EQ(log, "");
  host.thaw();
  world.run_ready();
  EXPECT_EQ(log, "a");
}

TEST(SimHost, ADeadHostDoesNothingAndHarmsNobody) {
  SimExecutor world(1);
  std::string log;
  {
    SimHost host(world);
    host.post([&] { log += 'x'; });
    host.run_at(host.now() + seconds(1), [&] { log += 'x'; });
  }
  SimHost other(world);
  other.run_at(other.now() + seconds(1), [&] { log += 'o'; });
  world.run_for(seconds(2));
  EXPECT_EQ(log, "o");
}

}  // namespace
}  // namespace mooncake::os
