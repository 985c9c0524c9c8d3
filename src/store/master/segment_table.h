// SegmentTable: the mounted segments, by handle, identity and name.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "store/master/allocation/segment_allocator.h"
#include "store/types.h"

namespace mooncake::store::master {

struct Segment {
  explicit Segment(std::uint64_t units) : allocator(units) {}

  std::uint32_t handle = 0;         // what Placement::segment holds
  std::uint32_t position = 0;       // in SegmentTable::all()
  std::uint32_t open_position = 0;  // in SegmentTable::open(), unless it is leaving
  ClientId client{};
  SegmentAddress address;
  std::uint64_t host_hash = 0;  // equal for segments of one host
  base::TimePoint grown{};      // when more of it was last prepared
  std::uint64_t leaves_at = 0;  // ns; 0: it stays
  std::uint32_t resting = 0;    // extents that its owner did not take data for, a moment ago
  SegmentAllocator allocator;

  // It is readable until it is gone, but nothing new goes there.
  bool leaving() const { return leaves_at != 0; }
};

// A handle is a slot and, above 16 bits, how often the slot has been used: what was said of a
// segment that is gone never points to another one.
class SegmentTable {
 public:
  static constexpr std::size_t kMaxSegments = 16384;

  // Null when the table is full.
  Segment* add(ClientId client, const SegmentAddress& address);
  void remove(Segment& segment);

  Segment* find(std::uint32_t handle);
  const Segment* find(std::uint32_t handle) const;
  Segment* find(const base::Uuid& id);
  // Segments of this name, all of one engine.
  std::span<Segment* const> all_named(std::string_view name) const;
  // One of them; null when there is none.
  Segment* named(std::string_view name) const;
  std::span<Segment* const> on_host(std::uint64_t host_hash) const;
  static std::uint64_t host_hash(std::string_view host);

  std::span<Segment* const> all() const { return all_; }
  // Those that take something new.
  std::span<Segment* const> open() const { return open_; }
  // Of these the largest.
  std::uint64_t largest_units() const { return sizes_.empty() ? 0 : sizes_.rbegin()->first; }
  // From now on the segment is one that leaves.
  void leave(Segment& segment, std::uint64_t at);

 private:
  struct Slot {
    std::unique_ptr<Segment> segment;
    std::uint16_t uses = 0;
  };
  std::vector<Slot> slots_;
  std::deque<std::uint16_t> free_slots_;  // the longest free one is used first
  void close(Segment& segment);

  std::vector<Segment*> all_;
  std::vector<Segment*> open_;
  std::unordered_map<base::Uuid, Segment*> by_id_;
  std::map<std::string, std::vector<Segment*>, std::less<>> by_name_;
  std::unordered_map<std::uint64_t, std::vector<Segment*>> by_host_;
  std::map<std::uint64_t, std::size_t> sizes_;  // units -> segments of so many
};

}  // namespace mooncake::store::master
