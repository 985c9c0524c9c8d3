#include "base/clock.h"

#include <ctime>

namespace mooncake::base {

namespace {

class SystemClock final : public Clock {
 public:
  TimePoint now() const override {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
  std::int64_t unix_seconds() const override { return std::time(nullptr); }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace mooncake::base
