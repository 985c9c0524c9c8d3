// Proves: the machine's clock never goes back and counts nanoseconds of the same clock that
// condition variables and sockets wait on.
#include "base/clock.h"

#include <gtest/gtest.h>

namespace mooncake::base {
namespace {

TEST(SystemClock, IsSteady) {
  const auto before = std::chrono::steady_clock::now().time_since_epoch();
  TimePoint last = system_clock().now();
  EXPECT_GE(last.time_since_epoch(), before);
  for (int i = 0; i < 1000; ++i) {
    const TimePoint next = system_clock().now();
    ASSERT_GE(next, last);
    last = next;
  }
  EXPECT_LE(last.time_since_epoch(), std::chrono::steady_clock::now().time_since_epoch());
}

TEST(SystemClock, KnowsTheDate) {
  constexpr std::int64_t kYear2024 = 1'704'067'200;
  EXPECT_GT(system_clock().unix_seconds(), kYear2024);
}

}  // namespace
}  // namespace mooncake::base
