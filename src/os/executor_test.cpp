// Proves: what Executor and Completion promise to coroutines: sleeping and yielding always let
// others go first, a Completion keeps its first value and resumes its waiter from the queue, never
// from inside set(). On the simulated executor, whose clock is read to see how long a sleep took.
#include "os/executor.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "os/sim_executor.h"

namespace mooncake::os {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Task<void> write_down(Executor& executor, std::string& log, char letter) {
  log += letter;
  co_await executor.yield();
  log += letter;
  co_await executor.sleep_for(milliseconds(10));
  log += letter;
}

TEST(Executor, YieldAndSleepLetOthersGoFirst) {
  SimExecutor executor(1);
  std::string log;
  base::TaskGroup group;
  executor.post([&] {
    group.start(write_down(executor, log, 'a'));
    group.start(write_down(executor, log, 'b'));
  });
  executor.run_ready();
  EXPECT_EQ(log, "abab");
  executor.run_for(milliseconds(9));
  EXPECT_EQ(log, "abab");
  executor.run_for(milliseconds(1));
  EXPECT_EQ(log, "ababab");
  EXPECT_EQ(group.running(), 0u);
}

Task<TimePoint> sleep_till(Executor& executor, TimePoint when) {
  co_await executor.sleep_until(when);
  co_return executor.now();
}

TEST(Executor, ASleepEndsAtItsTimeAndOneInThePastAtOnce) {
  SimExecutor executor(1);
  const TimePoint start = executor.now();
  EXPECT_EQ(executor.run(sleep_till(executor, start + seconds(3))), start + seconds(3));
  EXPECT_EQ(executor.run(sleep_till(executor, start)), start + seconds(3));
}

Task<void> take(Completion<std::unique_ptr<int>>& completion, std::string& log) {
  const auto value = co_await completion;
  log += std::to_string(*value);
}

TEST(Completion, TheWaiterRunsFromTheQueue) {
  SimExecutor executor(1);
  std::string log;
  Completion<std::unique_ptr<int>> completion(executor);
  base::TaskGroup group;
  executor.post([&] {
    group.start(take(completion, log));
    EXPECT_TRUE(completion.set(std::make_unique<int>(1)));
    EXPECT_FALSE(completion.set(std::make_unique<int>(2)));
    log += "set ";
  });
  executor.run_ready();
  EXPECT_EQ(log, "set 1");
  EXPECT_EQ(group.running(), 0u);
}

TEST(Completion, OneThatIsSetDoesNotWait) {
  SimExecutor executor(1);
  std::string log;
  Completion<std::unique_ptr<int>> completion(executor);
  base::TaskGroup group;
  executor.post([&] {
    completion.set(std::make_unique<int>(7));
    EXPECT_TRUE(completion.is_set());
    group.start(take(completion, log));
    log += " at once";
  });
  executor.run_ready();
  EXPECT_EQ(log, "7 at once");
}

// A deadline: the first of answer and timer decides.
Task<std::string> ask(Executor& executor, Completion<std::string>& answer, Duration patience) {
  const TimerId timer =
      executor.run_at(executor.now() + patience, [&answer] { answer.set("deadline"); });
  auto result = co_await answer;
  executor.cancel(timer);
  co_return result;
}

TEST(Completion, TheFirstOfAnswerAndDeadlineDecides) {
  SimExecutor executor(1);
  for (const int answer_after : {5, 15}) {
    Completion<std::string> answer(executor);
    const TimePoint start = executor.now();
    executor.run_at(start + seconds(answer_after), [&answer] { answer.set("answer"); });
    EXPECT_EQ(executor.run(ask(executor, answer, seconds(10))),
              answer_after < 10 ? "answer" : "deadline");
    EXPECT_EQ(executor.now(), start + seconds(std::min(answer_after, 10)));
    executor.run_for(seconds(20));
  }
}

}  // namespace
}  // namespace mooncake::os
