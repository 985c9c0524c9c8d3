// KeyCache: the keys of a peer's regions, as far as they were asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "memory/interval_index.h"
#include "memory/registry.h"

namespace mooncake::transfer {

// What it says may be out of date: then the peer refuses the key, and the cache is cleared.
// Executor thread only.
class KeyCache {
 public:
  static constexpr std::size_t kMaxRegions = 1u << 18;

  std::optional<memory::RegionKey> find(std::uint64_t address, std::uint64_t length) const {
    if (length == 0 || address + length < address) return std::nullopt;
    const auto* key = regions_.covering(address, address + length);
    return key ? std::optional(*key) : std::nullopt;
  }
  void add(std::uint64_t base, std::uint64_t length, memory::RegionKey key) {
    if (length == 0 || base + length < base || find(base, length)) return;
    if (regions_.size() >= kMaxRegions) regions_.clear();
    regions_.insert(base, base + length, key);
  }
  void clear() { regions_.clear(); }

 private:
  memory::IntervalIndex<memory::RegionKey> regions_;
};

}  // namespace mooncake::transfer
