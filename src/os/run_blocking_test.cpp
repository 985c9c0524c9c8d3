// Proves: a blocking caller gets its task's value once the task has ended and was destroyed on the
// executor's thread, and nothing when the executor has stopped. On a real thread with a plain
// queue; many callers at a time, so that the sanitizer builds see the hand-over.
#include "os/run_blocking.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace mooncake::os {
namespace {

// A thread that runs what is posted. Its timers run at once: no test here waits for time.
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor() : thread_([this] { loop(); }) {}
  ~ThreadExecutor() override { stop(); }

  bool post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    work_.push_back(std::move(work));
    changed_.notify_one();
    return true;
  }
  TimerId run_at(TimePoint, std::function<void()> work) override {
    post(std::move(work));
    return TimerId::kNone;
  }
  bool cancel(TimerId) override { return false; }
  bool on_this_thread() const override { return std::this_thread::get_id() == thread_.get_id(); }
  const base::Clock& clock() const override { return base::system_clock(); }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
      if (work_.empty()) return;
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards the two below
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

// Says on which thread and when it was destroyed.
struct Trace {
  Trace(Executor& executor, bool& freed_there) : executor_(executor), freed_there_(freed_there) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() { freed_there_ = executor_.on_this_thread(); }
  Executor& executor_;
  bool& freed_there_;
};

Task<std::string> greet(Executor& executor, std::string name, bool& freed_there) {
  const Trace trace(executor, freed_there);
  for (int i = 0; i < 3; ++i)
    co_await executor.yield();
  co_return executor.on_this_thread() ? "hello " + name : "wrong thread";
}

TEST(RunBlocking, ReturnsTheValueOfATaskThatIsOver) {
  ThreadExecutor executor;
  bool freed_there = false;
  EXPECT_EQ(run_blocking(executor, greet(executor, "a", freed_there)), "hello a");
  EXPECT_TRUE(freed_there);
}

Task<void> set(bool& flag) {
  flag = true;
  co_return;
}

TEST(RunBlocking, TasksWithoutAValueSayThatTheyRan) {
  ThreadExecutor executor;
  bool flag = false;
  EXPECT_TRUE(run_blocking(executor, set(flag)));
  EXPECT_TRUE(flag);
}

TEST(RunBlocking, AStoppedExecutorRunsNothing) {
  ThreadExecutor executor;
  executor.stop();
  bool flag = false;
  bool freed_there = false;
  EXPECT_FALSE(run_blocking(executor, set(flag)));
  EXPECT_EQ(run_blocking(executor, greet(executor, "a", freed_there)), std::nullopt);
  EXPECT_FALSE(flag);
}

Task<int> add_one(Executor& executor, int& counter) {
  const int before = counter;
  co_await executor.yield();
  counter = before + 1;
  co_return counter;
}

TEST(RunBlocking, ManyCallersAtATime) {
  ThreadExecutor executor;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&executor] {
      int counter = 0;
      for (int n = 1; n <= 200; ++n) {
        ASSERT_EQ(run_blocking(executor, add_one(executor, counter)), n);
      }
    });
  }
  for (auto& caller : callers)
    caller.join();
}

Task<bool> wait_for(Completion<bool>& completion) { co_return co_await completion; }

TEST(RunBlocking, AWaiterThatGivesUpCancelsAndStillWaitsForTheEnd) {
  ThreadExecutor executor;
  Completion<bool> completion(executor);
  int asked = 0;
  const auto answer = run_blocking(
      executor, wait_for(completion), std::chrono::milliseconds(1), [&] { return ++asked == 3; },
      [&] { completion.set(true); });
  EXPECT_EQ(answer, true);
  EXPECT_EQ(asked, 3);
}

Task<void> set_behind(Executor& executor, int& counter) {
  co_await executor.yield();
  counter = 1;
}

TEST(RunBehind, TellsTheEndAndKeepsNobodyWaiting) {
  ThreadExecutor executor;
  int counter = 0;
  Completion<bool> ended(executor);
  ASSERT_TRUE(run_behind(executor, set_behind(executor, counter),
                         [&ended, &counter] { ended.set(counter == 1); }));
  EXPECT_EQ(run_blocking(executor, wait_for(ended)), true);
}

}  // namespace
}  // namespace mooncake::os
