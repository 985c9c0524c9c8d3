// Placer: on which segments an object's replicas go.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/random.h"
#include "store/master/allocation/strategy.h"
#include "store/master/segment_table.h"

namespace mooncake::store::master {

// Where a writer would like its object to be.
struct PlacementWishes {
  std::span<const std::string_view> preferred{};  // names of segments, tried first, in this order
  std::span<const std::uint32_t> own{};           // handles of the writer's segments
  std::uint64_t host = 0;                         // host_hash of the writer's host
  bool same_node = false;                         // its own, then its host's
  bool spare_resting = false;                     // segments in which extents rest come last
};

// Replicas of one object lie in distinct segments, and on distinct hosts as long as another host
// has room; wishes go before the rule of hosts. Only the first replica is drawn to the writer's
// node. When what the strategy has chosen is full, the others are gone through from there on. A
// segment in which extents rest may be that of a dead owner: where it is spared, it is taken only
// when no other has room, whatever is wished.
// Segments that are leaving get nothing. O(segments tried). Repeatable for a seed. One thread.
class Placer {
 public:
  Placer(std::uint64_t seed, AllocationStrategy strategy) : random_(seed), strategy_(strategy) {}

  struct Chosen {
    Segment* segment = nullptr;
    SegmentAllocator::Extent extent;
  };
  // Allocates one more replica beside those in `taken`.
  std::optional<Chosen> place(SegmentTable& table, std::uint64_t units,
                              const PlacementWishes& wishes, std::span<const Chosen> taken);
  // The same on one of a few segments, the first that has room.
  static std::optional<Chosen> place_in(std::span<Segment* const> segments, std::uint64_t units,
                                        std::span<const Chosen> taken);

 private:
  // Segments that are out of the question.
  struct Barred {
    std::span<const Chosen> taken;
    bool hosts = false;    // of those taken, too
    bool resting = false;  // in which extents rest, too
    bool has(const Segment& segment) const;
  };
  static std::optional<Chosen> try_one(Segment& segment, std::uint64_t units, const Barred& barred);
  static std::optional<Chosen> try_all(std::span<Segment* const> segments, std::uint64_t units,
                                       const Barred& barred);
  std::optional<Chosen> place_by_wishes(SegmentTable& table, std::uint64_t units,
                                        const PlacementWishes& wishes, Barred barred);
  std::optional<Chosen> place_near(SegmentTable& table, std::uint64_t units,
                                   const PlacementWishes& wishes, const Barred& barred);
  std::optional<Chosen> place_by_free_ratio(std::span<Segment* const> segments, std::uint64_t units,
                                            const Barred& barred);
  std::optional<Chosen> place_anywhere(std::span<Segment* const> segments, std::uint64_t units,
                                       const Barred& barred);
  std::size_t draw(std::span<Segment* const> segments);

  base::Random random_;
  const AllocationStrategy strategy_;
};

}  // namespace mooncake::store::master
