// Budget: one bound for all memory that a process gives to others, whoever takes it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "mooncake/result.h"

namespace mooncake::base {

enum class MemoryUse : std::uint8_t {
  kSegments,      // pools that a store has mounted
  kBuffers,       // pools that users have asked for
  kReceive,       // requests of peers, replies that they have not read, rings that they write to
  kQuarantine,    // taken back, but a peer may still touch it
  kDeadMappings,  // of peers that have gone, and whose memory lives on here
  kMappings,      // of peers that live: address space, not bounded
};
inline constexpr std::size_t kMemoryUses = 6;
std::string_view to_string(MemoryUse use);

// Thread-safe.
class Budget {
 public:
  explicit Budget(std::uint64_t limit) : limit_(limit) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // kOutOfMemory names what was asked, what is used by what, the limit and the setting.
  Result<void> take(MemoryUse use, std::uint64_t bytes, std::string_view what);
  // For bytes that are there whether there is room for them or not; take() is refused then.
  void add(MemoryUse use, std::uint64_t bytes);
  void give_back(MemoryUse use, std::uint64_t bytes);
  bool has_room(std::uint64_t bytes) const {
    const std::uint64_t in_use = used();
    return in_use <= limit_ && bytes <= limit_ - in_use;
  }

  std::uint64_t used() const { return total_.load(std::memory_order_relaxed); }
  std::uint64_t used(MemoryUse use) const {
    return by_use_[static_cast<std::size_t>(use)].load(std::memory_order_relaxed);
  }
  std::uint64_t limit() const { return limit_; }

 private:
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> total_{0};  // of what is bounded
  std::array<std::atomic<std::uint64_t>, kMemoryUses> by_use_{};
};

}  // namespace mooncake::base
