// SegmentAllocator: which units of one segment are free. O(1), coalescing, with all of its
// bookkeeping outside the segment, whose memory is another process's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "mooncake/result.h"
#include "store/master/slab.h"

namespace mooncake::store::master {

// Free ranges hang in lists by size class: exact up to 15 units, then eight classes per power of
// two. A range is cut to the very size that was asked for, so that equal blocks lose nothing. Only
// units below the prepared limit are handed out. 24 bytes for each range, used or free. One thread.
class SegmentAllocator {
 public:
  // Extents are numbered in 32 bits, and so are their units: of a segment of 2^32 units the last
  // one is never used.
  static constexpr std::uint64_t kMaxUnits = 0xFFFFFFFF;

  explicit SegmentAllocator(std::uint64_t units);

  // Units below `units` may be handed out from now on. Never shrinks.
  void prepare(std::uint64_t units);

  struct Extent {
    std::uint32_t unit = 0;
    std::uint32_t handle = kNone;  // names the extent until it is freed
  };
  // Nothing when no free range is long enough, or none was found in a bounded search of ranges that
  // are within an eighth of the size. `owner` is the caller's.
  std::optional<Extent> allocate(std::uint64_t units, std::uint32_t owner);
  void free(std::uint32_t handle);

  std::uint32_t owner(std::uint32_t handle) const { return nodes_[handle].a; }
  void set_owner(std::uint32_t handle, std::uint32_t owner) { nodes_[handle].a = owner; }
  std::uint32_t unit(std::uint32_t handle) const { return nodes_[handle].first; }
  std::uint64_t units(std::uint32_t handle) const { return nodes_[handle].units(); }
  bool in_use(std::uint32_t handle) const {
    return handle < nodes_.size() && nodes_[handle].b == kUsed;
  }

  std::uint64_t capacity() const { return capacity_; }  // units
  std::uint64_t prepared() const { return prepared_; }
  std::uint64_t allocated() const { return allocated_; }
  std::uint64_t free_units() const { return prepared_ - allocated_; }
  std::uint32_t extents() const { return extents_; }
  // Whether a range of this length could be had once everything is prepared.
  bool fits_when_prepared(std::uint64_t units) const;

  // In order of their units.
  void for_each(const std::function<void(std::uint32_t handle)>& visit) const;

  std::size_t memory_bytes() const { return nodes_.memory_bytes() + sizeof(*this); }
  // Ranges cover the prepared units without gap or overlap, no two free ones touch, lists and sums
  // are right. O(all).
  Result<void> verify() const;

 private:
  static constexpr std::uint32_t kUsed = 0xFFFFFFFE;  // in `b`: the range is handed out
  static constexpr std::uint32_t kClasses = 256;

  // A range of units, and its place among its neighbours.
  struct Node {
    std::uint32_t first = 0;
    std::uint32_t last = 0;  // inclusive
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
    std::uint32_t a = kNone;  // free: previous of its class; used: the owner
    std::uint32_t b = kNone;  // free: next of its class; used: kUsed
    std::uint64_t units() const { return std::uint64_t{last} - first + 1; }
  };
  static_assert(sizeof(Node) == 24);

  static std::uint32_t class_of(std::uint64_t units);
  std::uint32_t next_class(std::uint32_t from) const;
  std::uint32_t search(std::uint64_t units) const;
  std::uint32_t search_class(std::uint32_t index, std::uint64_t units, int tries) const;
  void link(std::uint32_t node);
  void unlink(std::uint32_t node);
  bool is_free(std::uint32_t node) const { return node != kNone && nodes_[node].b != kUsed; }
  void absorb_next(std::uint32_t node);
  Result<void> verify_lists(std::uint64_t free_ranges) const;

  const std::uint64_t capacity_;
  std::uint64_t prepared_ = 0;
  std::uint64_t allocated_ = 0;
  std::uint32_t extents_ = 0;
  std::uint32_t first_ = kNone;  // range of the lowest units
  std::uint32_t last_ = kNone;
  std::array<std::uint64_t, kClasses / 64> filled_{};  // bit per class that has a range
  std::array<std::uint32_t, kClasses> heads_;
  Slab<Node, 256> nodes_;
};

}  // namespace mooncake::store::master
