// Core: the Master's whole logic as a state machine. No I/O, no clock, no threads: a command and
// the time go in, one effect per item comes out. RPC front, simulator and, later, log replay drive
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "mooncake/result.h"
#include "mooncake/why.h"
#include "store/master/allocation/strategy.h"
#include "store/master/eviction/kind.h"
#include "store/types.h"

namespace mooncake::store::master {

using base::Epoch;
using base::TimePoint;
using base::Version;

enum class CommandKind : std::uint8_t {
  kMount,      // segments: all that the client gives; what it gave and does not name is unmounted
  kUnmount,    // segments (id, incarnation), grace; none = the client and all it has, at once
  kHeartbeat,  // segments (id, incarnation, prepared)
  kGrant,      // items (key, size), replicas, terms
  kPublish,    // items (key, version, incarnations)
  kRevoke,     // items (key, version)
  kLocate,     // items (key); takes a lease of lease_ttl on what it finds
  kExist,      // items (key); likewise, unless a remove has been refused for a lease since the last
           // locate: so whoever insists on a remove succeeds within lease_ttl of the last locate
  kRemove,  // items (key), force
  kSweep,   // removes the objects whose keys match, from `cursor` on, looking at `budget` entries;
            // leased ones stay unless it is forced. One item, whose key says what is matched; it
  // may be empty. Numbered as others are, but client 0 is the Master itself, which repeats
  // nothing
  kDisown,  // no client: segments (name, owner) of engines that are known to be dead; the clients
            // that have any of them have gone
  kTick,    // no client: expiry of clients, release of what they left, eviction to the watermark
};

// In order: names, then what is asked.
struct CommandItem {
  std::string_view key;
  std::uint64_t size = 0;
  Version version;
  // kPublish: one for each replica of the grant, in order; 0 = its bytes did not arrive, and its
  // placement is freed. kInvalidReplica, and the grant stays open, when one names a segment that
  // has been mounted anew since or is gone, or when all are 0.
  std::span<const base::SegmentIncarnation> incarnations{};
};

struct MountedSegment {
  SegmentAddress address;
  std::uint64_t prepared = 0;
};

// How a grant's objects are to be placed and kept; as in ReplicateConfig.
struct GrantTerms {
  bool upsert = false;  // replaces what is published under the key when it is published itself
  bool hard_pin = false;
  SoftPin soft_pin = SoftPin::kPreserve;
  std::optional<base::Duration> soft_pin_ttl;
  bool prefer_same_node = false;
  std::span<const std::string_view> preferred{};  // names of segments
};

// Points to what the caller keeps alive during apply().
struct Command {
  CommandKind kind = CommandKind::kTick;
  ClientId client{};
  // kMount, kUnmount, kHeartbeat: the command's number; lower ones than seen are ignored
  // (kStaleCommand). kGrant, kPublish, kRevoke, kRemove: of the first item, the others follow. What
  // was answered for a number is answered again; numbers below `oldest_open` are kStaleCommand.
  // kBusy and kSpaceInPreparation decide nothing: the same number may be asked again. kBusy also
  // when a number is 65536 or more above the oldest open one. An open grant whose number is below
  // has been abandoned and is released at once.
  std::uint64_t sequence = 0;
  std::uint64_t oldest_open = 0;
  // kUnmount: the segments go only after it; until then they are readable and get nothing new.
  // Asked for again it can become shorter, not longer.
  base::Duration grace{};
  Epoch newest_epoch{};    // kMount: the core's epoch rises above it, or it answers kBusy until
                           // its limit allows that
  Version newest_version;  // kHeartbeat: the youngest that was written into the client's segments.
                           // One that was never granted is forged, and would shut out the
                           // younger grants to come: the client has to mount again
  std::size_t budget = 4096;  // kTick, kSweep: entries to visit at most; a sweep visits one
  std::uint32_t cursor = 0;   // kSweep: 0, then what the effect before said
  const std::function<bool(std::string_view key)>* matches = nullptr;  // kSweep; null: each key
  // kSweep: asked between two entries; true ends the step. Null: only the budget does. Part of the
  // command as `matches` is: what it goes by (a clock) is its owner's.
  const std::function<bool()>* enough = nullptr;
  std::uint32_t replicas = 1;
  GrantTerms terms{};
  ObjectDataType data_type = ObjectDataType::kUnknown;  // kGrant; for whoever counts
  bool force = false;
  bool set_aside = false;  // kRevoke: the extents rest before they are granted again
  std::string_view client_name;
  std::span<const CommandItem> items{};
  std::span<const MountedSegment> segments{};
};

inline constexpr std::uint32_t kSweepEnd = 0xFFFFFFFF;

// Outcome of one item. Fixed size; lives in the caller's arena.
struct Effect {
  Code code = Code::kOk;
  std::uint8_t replicas = 0;
  std::uint32_t cursor = 0;  // kSweep: where to go on; kSweepEnd: nothing is left
  Version version;
  std::uint64_t size = 0;  // bytes; kSweep: objects removed
  Placement placements[kMaxReplicas];
};
static_assert(sizeof(Effect) == 56);

// Why a grant found no room; of the first such item of a command.
struct Shortage {
  std::uint64_t needed = 0;
  std::uint64_t evictable = 0;
  std::uint64_t held = 0;        // leased, or open for writing
  std::uint64_t pinned = 0;      // not to be evicted, or only in segments that are leaving
  std::uint64_t unprepared = 0;  // not yet ready at the owners
  std::uint64_t resting = 0;     // set aside, as owners did not take data there
};

// What the core decided beyond its answers; for checkers and counters now, for owners and the log
// later. The newest are also remembered, by key (why()).
struct Decision {
  enum class Kind : std::uint8_t {
    kPublished,
    kRemoved,
    kEvicted,
    kReplaced /* by an upsert, whose kPublished follows */,
    kGrantExpired,
    kRevoked,
    kLost /* its segment went */
  };
  Kind kind{};
  KeyEventKind event{};  // the kind, and what led to it
  Version version;
  std::uint64_t size = 0;
  std::string key;
};

inline constexpr std::size_t kMaxWritesOfOneKey = 64;

// One effect for each item (or segment) of the command, in order. `items` has room for all of them.
struct Effects {
  Code code = Code::kOk;  // of the command as a whole; unless kOk, each item has it too
  std::span<Effect> items;
  std::optional<Shortage> shortage;
  std::vector<Decision>* decisions = nullptr;  // null: not wanted
  bool more = false;                           // kTick: the budget ended before the work did
};

struct CoreOptions {
  AllocationStrategy strategy = AllocationStrategy::kRandom;
  EvictionKind eviction_policy = EvictionKind::kLru;
  Epoch epoch{};
  Epoch epoch_limit{};  // the highest that the server has stored; beyond it the core answers kBusy
  std::uint64_t hash_seed = 0;
  base::Duration lease_ttl = std::chrono::seconds(10);
  base::Duration client_ttl = std::chrono::seconds(10);
  // An open write of a live client is given up after this; of an expired client at once.
  base::Duration grant_ttl = std::chrono::seconds(30);
  base::Duration soft_pin_ttl = std::chrono::minutes(30);    // of grants that name none
  base::Duration max_soft_pin_ttl = std::chrono::hours(24);  // at most 49 days
  // Whether soft-pinned objects may go when nothing else is left to evict.
  bool evict_soft_pinned = true;
  double eviction_high_watermark =
      0.90;  // share of capacity; 1 = evict only when a grant needs room
  double eviction_ratio = 0.05;
  // A segment whose owner has prepared nothing more for so long is not waited for: a grant evicts.
  base::Duration preparation_patience = std::chrono::seconds(3);
  // Events that are remembered for why(), rounded up to a power of two; 0 = none. 72 bytes each,
  // whatever the number of objects.
  std::size_t remembered_events = std::size_t{1} << 16;
};

struct Totals {
  std::uint64_t objects = 0;  // published
  std::uint64_t soft_pinned_objects = 0, hard_pinned_objects = 0;
  std::uint64_t open_grants = 0;
  std::uint64_t capacity_bytes = 0;  // of mounted segments
  std::uint64_t prepared_bytes = 0;
  std::uint64_t allocated_bytes = 0;  // in units, published, open and resting
  std::uint64_t resting_extents = 0;
  std::uint64_t clients = 0;
  std::uint64_t segments = 0;
  // Since start.
  std::uint64_t evicted_objects = 0, evicted_bytes = 0, expired_clients = 0, lost_objects = 0,
                disowned_clients = 0, forged_versions = 0;
  std::uint64_t eviction_attempts = 0, grant_shortages = 0, partial_grants = 0, expired_grants = 0;
};

struct SegmentUse {
  SegmentAddress address;
  ClientId client{};
  std::uint64_t prepared = 0;
  std::uint64_t allocated_bytes = 0;
  bool leaving = false;
};

// One thread at a time. Batches are first-class: all keys are hashed, then all entries prefetched,
// then answered. Memory per object beside its key's text: at most 160 bytes. `now` never goes back.
//
// Grant: kObjectExists when the key is published, or is being written under a grant that has not
// expired (the caller treats it as present); not for an upsert, which may be one of many writes
// (kMaxWritesOfOneKey, then kBusy) that are open for a key. Finding no room it evicts; kNoSpace
// only when what is free and what may be evicted is less than the object or lies in no one piece,
// or was evicted in vain too often (below), kSpaceInPreparation when an owner is still preparing
// enough. Fewer replicas than asked are given rather than none; for one more than the first nothing
// is evicted that could not make room for it.
// Publish: an upsert takes the place of what is published, at once, whatever leases that has; a put
// that finds something published is answered kObjectExists, and its grant has ended.
// The writer's grant ends by publish, revoke, grant_ttl (lazily), its own expiry, or when its
// number is no longer open; a late publish then finds kObjectNotFound, or kInvalidWrite when the
// key is another's by now. Clients are told apart by ClientId alone. A segment's name may be
// another live client's only if both are of one engine (`owner`); its id never: kSegmentExists. A
// namesake of another engine is let in when the one before has expired, or is said to be dead
// (kDisown).
// Extents that an owner did not take data for, of a grant that was revoked for that (`set_aside`)
// or of a replica that is left out when the others are published, lie aside for kRest, at most
// kMaxResting of all: readers have pinned what lies there, or the owner stands still or is dead,
// and the next writer should not be sent there at once, nor to their segments while others have
// room. While kMostGrantsInVain grants of a key for which objects were evicted lie aside, nothing
// more is evicted for that key: pins can't be seen from here, and a writer who asks again and again
// must not empty the pool. Time in which the core itself was not run does not count against its
// clients: a tick that comes more than client_ttl / 2 after the one before gives all of them a new
// client_ttl.
class Core {
 public:
  static constexpr base::Duration kRest = std::chrono::seconds(1);
  static constexpr std::size_t kMaxResting = 65536;
  static constexpr std::size_t kMostGrantsInVain = 64;

  explicit Core(const CoreOptions& options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  void apply(const Command& command, TimePoint now, Effects& effects);

  // Rises when grants have used up an epoch's sequence numbers, or a client has seen a higher one.
  Epoch epoch() const;
  // After the server has stored a higher limit.
  void extend_epochs(Epoch limit);
  bool wants_epochs() const;   // close to the limit, or a client has seen a higher epoch
  Epoch wanted_limit() const;  // the lowest that ends that
  const Totals& totals() const;
  // How to reach a placement's segment; null when it is gone, also when another one has its place.
  const SegmentAddress* segment(std::uint32_t handle) const;
  // One that has this name; null when there is none.
  const SegmentAddress* segment_named(std::string_view name) const;
  std::vector<SegmentUse> segments() const;
  // As kLocate answers, but takes no lease.
  Effect peek(std::string_view key) const;
  // Calls `visit` for the published keys among the next `budget` entries from `cursor` on; returns
  // where to go on, kSweepEnd when nothing is left. What comes or goes meanwhile may be left out.
  std::uint32_t visit_keys(std::uint32_t cursor, std::size_t budget,
                           const std::function<void(std::string_view key)>& visit) const;

  // What became of a key: its present state and at most `most_events` of what is remembered of it.
  // Takes no lease. What only the server knows (uptime, wall time) and the words are left empty.
  KeyReport why(std::string_view key, std::size_t most_events, TimePoint now) const;

  // Recomputes every sum from the entries and compares: extents disjoint and inside their segment,
  // allocator and directory agree, counters equal reality, queues whole. The text names the first
  // difference. For tests and simulation; O(all).
  Result<void> verify() const;

  // Bytes of entries, table, allocator nodes and what the eviction policy remembers; of the key
  // arena; of remembered events.
  struct Memory {
    std::size_t objects = 0, keys = 0, events = 0;
  };
  Memory memory() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mooncake::store::master
