// Time. Every wait and time-out is monotonic; wall time only names epochs and log lines.
#pragma once

#include <chrono>
#include <cstdint>

namespace mooncake::base {

using Duration = std::chrono::nanoseconds;

// Tag of the product's monotonic time; the zero is arbitrary (boot in production, 0 in simulation).
struct Monotonic {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Monotonic, duration>;
  static constexpr bool is_steady = true;
};
using TimePoint = Monotonic::time_point;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  // Seconds since 1970. Only for epochs and text.
  virtual std::int64_t unix_seconds() const = 0;
};

// The one clock of the machine. Cheap (vDSO); never goes back.
const Clock& system_clock();

}  // namespace mooncake::base
