// SegmentTable: the mounted segments, by handle, identity and name.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "store/master/allocation/segment_allocator.h"
#include "store/types.h"

namespace mooncake::store::master {

struct Segment {
  explicit Segment(std::uint64_t units) : allocator(units) {}

  std::uint32_t handle = 0;    // what Placement::segment holds
  std::uint32_t position = 0;  // in SegmentTable::all()
  ClientId client{};
  SegmentAddress address;
  std::uint64_t host_hash = 0;  // equal for segments of one host
  base::TimePoint grown{};      // when more of it was last prepared
  SegmentAllocator allocator;
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
  // One segment of this name; null when there is none. All of one name are of one engine.
  Segment* named(const std::string& name);

  std::span<Segment* const> all() const { return all_; }
  std::uint64_t largest_units() const { return sizes_.empty() ? 0 : sizes_.rbegin()->first; }

 private:
  struct Slot {
    std::unique_ptr<Segment> segment;
    std::uint16_t uses = 0;
  };
  std::vector<Slot> slots_;
  std::deque<std::uint16_t> free_slots_;  // the longest free one is used first
  std::vector<Segment*> all_;
  std::unordered_map<base::Uuid, Segment*> by_id_;
  std::unordered_map<std::string, std::vector<Segment*>> by_name_;
  std::map<std::uint64_t, std::size_t> sizes_;  // units -> segments of so many
};

}  // namespace mooncake::store::master
