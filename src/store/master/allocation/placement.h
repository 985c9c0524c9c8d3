// Placer: on which segments an object's replicas go.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"
#include "store/master/segment_table.h"

namespace mooncake::store::master {

// Replicas of one object lie in distinct segments, and on distinct hosts as long as another host
// has room. Otherwise of two segments drawn by lot the emptier one is taken; when it has no room
// the others are gone through from there on. O(segments tried). Repeatable for a seed. One thread.
class Placer {
 public:
  explicit Placer(std::uint64_t seed) : random_(seed) {}

  struct Chosen {
    Segment* segment = nullptr;
    SegmentAllocator::Extent extent;
  };
  // Allocates one more replica beside those in `taken`.
  std::optional<Chosen> place(std::span<Segment* const> segments, std::uint64_t units,
                              std::span<const Chosen> taken);
  // The same on one of the few segments where room has just been made.
  static std::optional<Chosen> place_in(std::span<Segment* const> segments, std::uint64_t units,
                                        std::span<const Chosen> taken);

 private:
  std::size_t draw(std::span<Segment* const> segments);
  std::optional<Chosen> place(std::span<Segment* const> segments, std::uint64_t units,
                              std::span<const Chosen> taken, bool other_host);

  base::Random random_;
};

}  // namespace mooncake::store::master
