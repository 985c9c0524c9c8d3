// Proves that a cancelled token ends every wait that is watched, once, also those that begin later,
// and none that is over; and that an Event's waiter leaves at the event, the deadline or the
// cancel, whichever comes first.
#include "os/cancel.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "os/event.h"
#include "os/sim_executor.h"

namespace mooncake::os {
namespace {

using std::chrono::seconds;

TEST(CancelToken, RunsTheWorkOfThoseThatWatch) {
  CancelToken token;
  int first = 0, second = 0, over = 0;
  CancelToken::Watch one(&token, [&] { ++first; });
  CancelToken::Watch two(&token, [&] { ++second; });
  {
    CancelToken::Watch gone(&token, [&] { ++over; });
  }
  EXPECT_FALSE(token.cancelled());
  token.cancel();
  token.cancel();
  EXPECT_TRUE(token.cancelled());
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
  EXPECT_EQ(over, 0);
}

TEST(CancelToken, EndsAtOnceWhatBeginsLater) {
  CancelToken token;
  token.cancel();
  int ended = 0;
  CancelToken::Watch watch(&token, [&] { ++ended; });
  EXPECT_EQ(ended, 1);
  CancelToken::Watch none(nullptr, [&] { ++ended; });
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(is_cancelled(nullptr));
}

TEST(CancelToken, OneMayEndAnother) {
  CancelToken token;
  int ended = 0;
  auto second = std::make_unique<std::optional<CancelToken::Watch>>();
  CancelToken::Watch first(&token, [&] {
    ++ended;
    second->reset();
  });
  second->emplace(&token, [&] { ++ended; });
  token.cancel();
  EXPECT_EQ(ended, 1);
}

Task<void> wait(Event& event, TimePoint deadline, CancelToken& token, std::optional<bool>& came) {
  came = co_await event.wait(deadline, &token);
}

TEST(Event, AWaiterLeavesWhenItIsCancelled) {
  SimExecutor executor(1);
  Event event(executor);
  CancelToken token, other;
  std::optional<bool> cancelled, patient, late;
  base::TaskGroup group;
  const TimePoint begin = executor.now();
  executor.post([&] {
    group.start(wait(event, begin + seconds(60), token, cancelled));
    group.start(wait(event, begin + seconds(60), other, patient));
  });
  executor.run_ready();
  executor.post([&] { token.cancel(); });
  executor.run_ready();
  EXPECT_EQ(cancelled, false);
  EXPECT_FALSE(patient.has_value());
  executor.post([&] { group.start(wait(event, begin + seconds(60), token, late)); });
  executor.run_ready();
  EXPECT_EQ(late, false) << "the token has been cancelled before";
  executor.post([&] { event.set(); });
  executor.run_ready();
  EXPECT_EQ(patient, true);
  EXPECT_EQ(executor.now(), begin);
}

}  // namespace
}  // namespace mooncake::os
