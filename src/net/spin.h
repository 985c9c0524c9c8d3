// Spin: how long a loop looks for work before it goes to sleep, from how long its waits have been.
// A sleep costs two wake-ups of a core, some ten microseconds each; looking costs a core.
#pragma once

#include <sched.h>

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
  // Who had the core for so long is no peer that answers and sleeps again: for so many waits it is
  // not offered again, and kept for half as long.
  static constexpr base::Duration kLongAway = std::chrono::microseconds(500);
  static constexpr std::uint32_t kCrowded = 256;

  // Waits that are longer than `longest` on average are slept through; 0 where a spinning thread
  // would keep its peer from the only core.
  explicit Spin(base::Duration longest) : longest_(longest), average_(most()) {}

  // For the wait that begins now.
  base::Duration allowance() {
    if (crowded_ > 0) --crowded_;
    tries_ = ++waits_ % kTries == 0 && average_ > longest_;
    if (average_ > longest_ && !tries_) return {};
    return crowded_ > 0 ? longest_ / 2 : longest_;
  }
  // Between two looks: lets others run that wait for this core, such as the peer that is waited
  // for. Without it a peer that wakes up waits until this thread has looked long enough.
  void make_way() {
    if (crowded_ > 0) return;
    const base::TimePoint before = base::system_clock().now();
    ::sched_yield();
    was_away(base::system_clock().now() - before);
  }
  void was_away(base::Duration time) {
    if (time >= kLongAway) crowded_ = kCrowded;
  }
  // It took so long until there was work.
  void waited(base::Duration time) {
    const bool found = tries_ && time <= longest_;
    average_ += (std::min(time, most()) - average_) / (found ? 2 : 4);
  }

 private:
  base::Duration most() const { return 4 * longest_; }  // so that a few short waits turn the scale

  const base::Duration longest_;
  std::uint32_t crowded_ = 0;  // waits until this core is offered to others again
  std::uint32_t waits_ = 0;
  bool tries_ = false;  // the wait that began last
  base::Duration average_;
};

}  // namespace mooncake::net
