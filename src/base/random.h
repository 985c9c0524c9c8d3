// Random numbers of one executor: seeded, repeatable, not for secrets. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace mooncake::base {

class Random {
 public:
  explicit Random(std::uint64_t seed);

  std::uint64_t next();
  // Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound);
  double unit();  // [0, 1)
  bool chance(double probability) { return unit() < probability; }
  // Never the value that means "none".
  Incarnation incarnation() { return static_cast<Incarnation>(next() | 1); }
  SegmentIncarnation segment_incarnation() { return static_cast<SegmentIncarnation>(next() | 1); }
  Uuid uuid() { return {next() | 1, next()}; }

 private:
  std::uint64_t state_[4];
};

// From the kernel; for seeds, keys and nonces.
std::uint64_t secure_random();
void secure_random(std::span<std::byte> out);

}  // namespace mooncake::base
