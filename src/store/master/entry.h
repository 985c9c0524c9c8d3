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
  kReplaces = 2,  // an upsert
  kHardPinned = 4,
  // Of an open grant: what was asked for.
  kSoftPinWanted = 8,
  kSoftPinUnwanted = 16,
  // Published, and only in segments that are leaving: to evict it would help nobody.
  kLeaving = 32,
  kSoftPinned = 64,    // published, until soft_pin_until
  kCostVictims = 128,  // an open grant for which objects were evicted
};

inline constexpr std::uint32_t kNoEntry = kNone;
// In `extents`: the segment is gone. Only of an open grant, whose replicas keep their places.
inline constexpr std::uint32_t kNoExtent = kNone;

// Of an open grant.
struct OpenWrite {
  std::uint32_t number = 0;       // low bits of the item's in the writer's kGrant command
  std::uint32_t soft_pin_ms = 0;  // with kSoftPinWanted
};

// Two cache lines: a probe needs the first only. A key has one entry for its published object and
// one for each open write; the table leads to the first of them, `other` to the next. What is
// published comes first, and so decides about all a reader asks.
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
  std::uint8_t policy_bits = 0;    // the eviction policy's own
  std::uint8_t flags = 0;          // EntryFlags
  std::uint32_t other = kNoEntry;  // the next entry of this key

  Placement placements[kMaxReplicas];
  std::uint32_t extents[kMaxReplicas] = {};  // allocator handles, beside each placement
  ClientId writer{};                         // who opened the write
  union {
    OpenWrite open{};
    std::uint64_t soft_pin_until;  // kPublished: ns; 0 = none
  };
};
static_assert(sizeof(Entry) == 128);
static_assert(offsetof(Entry, placements) == 64);

}  // namespace mooncake::store::master
