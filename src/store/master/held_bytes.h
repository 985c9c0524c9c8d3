// HeldBytes: how much leases hold, without looking at the leases: their ends are sorted into slices
// of time, and slices that have passed hold nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace mooncake::store::master {

// Late by at most one slice (1/64 to 1/32 of the hold time) in the direction of "not held". One
// thread.
class HeldBytes {
 public:
  explicit HeldBytes(std::uint64_t hold_ns)
      : shift_(
            static_cast<std::uint32_t>(std::bit_width(std::max<std::uint64_t>(hold_ns, 64)) - 6)) {}

  // `until` is at most the hold time away.
  void add(std::uint64_t until, std::uint64_t bytes) { change(until, bytes); }
  void remove(std::uint64_t until, std::uint64_t bytes) { change(until, 0 - bytes); }
  // Time never goes back.
  void advance(std::uint64_t now) {
    const std::uint64_t slice = now >> shift_;
    for (; passed_ < slice && held_ > 0; ++passed_) {
      std::uint64_t& ended = slices_[(passed_ + 1) % kSlices];
      held_ -= ended;
      ended = 0;
    }
    passed_ = std::max(passed_, slice);
  }
  std::uint64_t held() const { return held_; }

 private:
  static constexpr std::uint64_t kSlices = 128;
  void change(std::uint64_t until, std::uint64_t bytes) {
    const std::uint64_t slice = until >> shift_;
    if (slice <= passed_) return;
    slices_[slice % kSlices] += bytes;
    held_ += bytes;
  }

  const std::uint32_t shift_;
  std::uint64_t passed_ = 0;  // leases that end in this slice or before hold nothing
  std::uint64_t held_ = 0;
  std::array<std::uint64_t, kSlices> slices_{};
};

}  // namespace mooncake::store::master
