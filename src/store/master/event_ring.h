// EventRing: the newest events of all keys, found by key. Outlives the entries they are about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "mooncake/why.h"
#include "store/types.h"

namespace mooncake::store::master {

// Events that share some bits of their key's hash are linked, newest first, so that adding one
// costs two cache lines and finding those of a key looks at few others. One thread.
class EventRing {
 public:
  // Of a search: beyond, what is older counts as left out. Keys that happen to share a list with
  // one that changes all the time would else cost a walk through the whole ring.
  static constexpr std::size_t kMostSteps = 1024;
  static constexpr std::size_t kMostGoneSegments = 1024;  // whose names are still known

  struct Event {
    base::Hash128 hash;
    base::Version version;
    std::uint64_t size = 0;  // bytes
    std::uint64_t at = 0;    // ns, the core's time
    ClientId writer{};
    std::uint64_t previous = 0;  // number of the next older event of the list; 0 = none
    std::uint32_t segment = 0;   // handle; 0 = none
    KeyEventKind kind{};
    bool soft_pinned = false;
  };
  static_assert(sizeof(Event) == 64);

  // Rounded up to a power of two; 0 remembers nothing.
  explicit EventRing(std::size_t capacity);

  void add(const Event& event);
  // What add() of an event of this key will need.
  void prefetch(const base::Hash128& hash) const {
    if (!lists_.empty()) __builtin_prefetch(&lists_[hash.low & (lists_.size() - 1)], 1);
  }
  struct Found {
    std::vector<Event> events;  // newest first
    bool more = false;          // there may be older ones
  };
  Found newest(const base::Hash128& hash, std::size_t most) const;

  std::uint64_t size() const { return events_.size(); }
  bool has_forgotten() const { return added_ > events_.size(); }
  std::uint64_t oldest_at() const;  // ns; 0 when there is none

  // Names of segments that are mounted no more, for the events about them.
  void segment_gone(std::uint32_t handle, const std::string& name);
  const std::string* gone_segment(std::uint32_t handle) const;

  std::size_t memory_bytes() const;

 private:
  const Event& numbered(std::uint64_t number) const {
    return events_[(number - 1) & (lists_.size() - 1)];
  }

  std::vector<Event> events_;         // by number - 1, modulo the capacity
  std::vector<std::uint64_t> lists_;  // number of each list's newest event; as many as events
  std::uint64_t added_ = 0;           // the number of the newest
  std::unordered_map<std::uint32_t, std::string> gone_;
  std::deque<std::uint32_t> gone_order_;
};

}  // namespace mooncake::store::master
