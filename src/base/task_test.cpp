// Proves: tasks are lazy, nest, pass move-only values and free their frames; a loop over tasks that
// end at once, or that are resumed from outside, keeps the stack flat in every build; a TaskGroup
// runs tasks beside their starter and wakes its joiner once, when the last has ended. A hand-made
// gate stands in for an executor.
#include "base/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace mooncake::base {
namespace {

// Suspends whoever awaits it until open() is called.
class Gate {
 public:
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> caller) noexcept { waiter_ = caller; }
  void await_resume() const noexcept {}
  bool waiting() const { return static_cast<bool>(waiter_); }
  void open() { std::exchange(waiter_, nullptr).resume(); }

 private:
  std::coroutine_handle<> waiter_;
};

// Counts the frames that hold one.
struct Guard {
  explicit Guard(int& count) : count_(count) { ++count_; }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { --count_; }
  int& count_;
};

Task<int> value_of(int value) { co_return value; }

Task<void> sum_up(int count, long* sum) {
  for (int i = 0; i < count; ++i) {
    const int value = co_await value_of(i);
    *sum += value;
  }
}

TEST(Task, StartsWhenAwaitedOnly) {
  long sum = 0;
  { const Task<void> never = sum_up(10, &sum); }
  EXPECT_EQ(sum, 0);
  TaskGroup group;
  group.start(sum_up(10, &sum));
  EXPECT_EQ(sum, 45);
  EXPECT_EQ(group.running(), 0u);
}

TEST(Task, ALoopOverTasksThatEndAtOnceKeepsTheStackFlat) {
  long sum = 0;
  TaskGroup group;
  group.start(sum_up(1'000'000, &sum));
  EXPECT_EQ(sum, 499'999'500'000);
}

Task<void> pass(Gate& gate) { co_await gate; }
Task<void> pass_through(Gate& gate) { co_await pass(gate); }
Task<void> pass_often(Gate& gate, int count, int* passed) {
  for (int i = 0; i < count; ++i) {
    co_await pass_through(gate);
    ++*passed;
  }
}

TEST(Task, ALoopOverTasksThatAreResumedKeepsTheStackFlat) {
  Gate gate;
  int passed = 0;
  TaskGroup group;
  group.start(pass_often(gate, 300'000, &passed));
  while (gate.waiting())
    gate.open();
  EXPECT_EQ(passed, 300'000);
  EXPECT_EQ(group.running(), 0u);
}

Task<std::unique_ptr<std::string>> boxed(std::string text) {
  co_return std::make_unique<std::string>(std::move(text));
}
Task<void> unbox(std::string* out) {
  auto box = co_await boxed("moved");
  *out = *box;
}

TEST(Task, PassesMoveOnlyValues) {
  std::string out;
  TaskGroup group;
  group.start(unbox(&out));
  EXPECT_EQ(out, "moved");
}

Task<int> guarded(int& alive, Gate& gate) {
  const Guard guard(alive);
  co_await gate;
  co_return 5;
}
Task<void> hold(int& alive, Gate& gate, int* result) {
  const Guard guard(alive);
  Task<int> inner = guarded(alive, gate);
  Task<int> moved = std::move(inner);
  *result = co_await moved;
}

TEST(Task, FramesAreFreedAtTheEnd) {
  int alive = 0;
  int result = 0;
  Gate gate;
  TaskGroup group;
  group.start(hold(alive, gate, &result));
  EXPECT_EQ(alive, 2);
  gate.open();
  EXPECT_EQ(result, 5);
  EXPECT_EQ(alive, 0);
}

Task<void> join_and_say(TaskGroup& group, int* joined) {
  co_await group.join();
  ++*joined;
}

TEST(TaskGroup, TheJoinerWakesWhenTheLastHasEnded) {
  Gate first;
  Gate second;
  int joined = 0;
  TaskGroup group;
  TaskGroup joiners;
  group.start(pass(first));
  group.start(pass(second));
  joiners.start(join_and_say(group, &joined));
  EXPECT_EQ(group.running(), 2u);
  second.open();
  EXPECT_EQ(joined, 0);
  first.open();
  EXPECT_EQ(joined, 1);
  EXPECT_EQ(joiners.running(), 0u);
  joiners.start(join_and_say(group, &joined));
  EXPECT_EQ(joined, 2) << "joining an idle group returns at once";
}

Task<void> own_group(Gate& gate, int* ended) {
  auto group = std::make_unique<TaskGroup>();
  group->start(pass(gate));
  co_await group->join();
  group.reset();
  ++*ended;
}

TEST(TaskGroup, TheJoinerMayDestroyTheGroupAtOnce) {
  Gate gate;
  int ended = 0;
  TaskGroup outer;
  outer.start(own_group(gate, &ended));
  gate.open();
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace mooncake::base
