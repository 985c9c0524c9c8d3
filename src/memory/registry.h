// Registry: which ranges of this process peers may touch, and with what key. Every access of a peer is
// checked here at the moment of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "memory/extent_table.h"
#include "mooncake/result.h"

namespace mooncake::memory {

// Random, one for each registration; an access that doesn't present it is refused.
enum class RegionKey : std::uint64_t {};

enum class Permission : std::uint8_t { kReadWrite, kReadOnly };

// One live registration. `extents` makes it guarded: then every access must name a generation or grant.
struct Region {
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  RegionKey key{};
  Permission permission = Permission::kReadWrite;
  std::string location = "*";
  std::shared_ptr<ExtentTable> extents;
};

// Registering an equal or overlapping range again succeeds and is counted: a range is accessible while
// at least one registration covers it. O(log n). Thread-safe.
class Registry {
 public:
  explicit Registry(std::uint64_t key_seed);

  // kInvalidArgument when empty, wrapping around, or not mapped (checked against the kernel's view).
  Result<Region> add(std::uint64_t base, std::uint64_t length, std::string_view location = "*",
                     Permission permission = Permission::kReadWrite,
                     std::shared_ptr<ExtentTable> extents = nullptr);
  // Takes back one registration that begins at `base`, the youngest first; kAddressNotRegistered when
  // there is none. Accesses that were admitted before are the engine's to end (transfer/access.h).
  Result<void> remove(std::uint64_t base);

  // The region that covers [base, base + length) under this key; kAddressNotRegistered, or
  // kRegionKeyMismatch when the range is registered under another key by now.
  Result<Region> check(std::uint64_t base, std::uint64_t length, RegionKey key) const;
  // Any region that covers the range: for descriptors, and for accesses from this process.
  Result<Region> find(std::uint64_t base, std::uint64_t length) const;

  std::size_t size() const;
  // Rises with every change; a descriptor of an older generation may be out of date.
  std::uint64_t generation() const;
  std::vector<Region> list(std::size_t most) const;

 private:
  mutable std::shared_mutex mutex_;                 // guards all below
  std::multimap<std::uint64_t, Region> by_base_;
  std::uint64_t longest_ = 0;                       // of all live regions; bounds the backward search
  std::uint64_t generation_ = 0;
  std::uint64_t next_key_;
};

}  // namespace mooncake::memory
