// Spin: how long a loop looks for work before it goes to sleep, from how long its waits have been.
// A sleep costs two wake-ups of a core, some ten microseconds each; looking costs a core.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace mooncake::net {

// Between two looks at memory: leaves the core's other thread more of it.
inline void relax_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One thread at a time.
class Spin {
 public:
  // Both ends of a connection wait for each other's wake-ups, so that neither ever sees how short
  // its waits could be; one of so many waits finds out, and what it finds counts for more.
  static constexpr std::uint32_t kTries = 64;

  // Waits that are longer than `longest` on average are slept through; 0 where a spinning thread
  // would keep its peer from the only core.
  explicit Spin(base::Duration longest) : longest_(longest), average_(most()) {}

  // For the wait that begins now.
  base::Duration allowance() {
    tries_ = ++waits_ % kTries == 0 && average_ > longest_;
    return average_ <= longest_ || tries_ ? longest_ : base::Duration();
  }
  // It took so long until there was work.
  void waited(base::Duration time) {
    const bool found = tries_ && time <= longest_;
    average_ += (std::min(time, most()) - average_) / (found ? 2 : 4);
  }

 private:
  base::Duration most() const { return 4 * longest_; }  // so that a few short waits turn the scale

  const base::Duration longest_;
  std::uint32_t waits_ = 0;
  bool tries_ = false;  // the wait that began last
  base::Duration average_;
};

}  // namespace mooncake::net
