// Entry: one object in the Master's directory. Packed: ten million of them are an ordinary cluster.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"
#include "store/master/eviction/eviction_policy.h"
#include "store/master/slab.h"
#include "store/types.h"

namespace mooncake::store::master {

enum class PutState : std::uint8_t { kFree = 0, kGranted, kPublished };

enum EntryFlags : std::uint8_t {
  // A remove was refused for a lease: until the next locate, probes do not extend it (core.h,
  // kExist).
  kRemoveWanted = 1,
};

inline constexpr std::uint32_t kNoEntry = kNone;
// In `extents`: the segment is gone. Only of an open grant, whose replicas keep their places.
inline constexpr std::uint32_t kNoExtent = kNone;

// Two cache lines: a probe needs the first only.
struct Entry {
  std::uint64_t hash_high = 0;  // xxh3-128 of tenant and key, seeded per cluster
  std::uint64_t hash_low = 0;
  std::uint64_t until = 0;  // ns: end of the lease; of the grant while kGranted
  std::uint64_t size = 0;
  base::Version version;  // of the open grant or the published object
  QueueLinks queue;       // eviction queue, or the list of open grants
  std::uint32_t key = 0;  // in the key arena
  std::uint16_t key_length = 0;
  std::uint16_t tenant = 0;  // reserved for tenants: 0 = default
  PutState state = PutState::kFree;
  std::uint8_t replicas = 0;
  std::uint8_t policy_bits = 0;  // the eviction policy's own
  std::uint8_t flags = 0;        // EntryFlags
  std::uint32_t reserved = 0;

  Placement placements[kMaxReplicas];
  std::uint32_t extents[kMaxReplicas] = {};  // allocator handles, beside each placement
  ClientId writer{};                         // who opened the write
  std::uint64_t sequence = 0;                // of the item in the writer's kGrant command
};
static_assert(sizeof(Entry) == 128);
static_assert(offsetof(Entry, placements) == 64);

}  // namespace mooncake::store::master
