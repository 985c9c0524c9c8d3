#include "store/master/allocation/placement.h"

#include <algorithm>

namespace mooncake::store::master {

namespace {

bool is_taken(const Segment& segment, std::span<const Placer::Chosen> taken, bool by_host) {
  return std::any_of(taken.begin(), taken.end(), [&](const Placer::Chosen& chosen) {
    return chosen.segment == &segment ||
           (by_host && chosen.segment->host_hash == segment.host_hash);
  });
}

}  // namespace

std::size_t Placer::draw(std::span<Segment* const> segments) {
  if (segments.size() == 1) return 0;
  const std::size_t a = random_.below(segments.size());
  const std::size_t b = random_.below(segments.size());
  return segments[a]->allocator.free_units() >= segments[b]->allocator.free_units() ? a : b;
}

std::optional<Placer::Chosen> Placer::place(std::span<Segment* const> segments, std::uint64_t units,
                                            std::span<const Chosen> taken) {
  if (segments.size() <= taken.size()) return std::nullopt;
  if (!taken.empty()) {
    if (auto chosen = place(segments, units, taken, true)) return chosen;
  }
  return place(segments, units, taken, false);
}

std::optional<Placer::Chosen> Placer::place(std::span<Segment* const> segments, std::uint64_t units,
                                            std::span<const Chosen> taken, bool other_host) {
  const std::size_t start = draw(segments);
  for (std::size_t tried = 0; tried < segments.size(); ++tried) {
    Segment& segment = *segments[(start + tried) % segments.size()];
    if (is_taken(segment, taken, other_host)) continue;
    if (const auto extent = segment.allocator.allocate(units, kNone)) {
      return Chosen{&segment, *extent};
    }
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::place_in(std::span<Segment* const> segments,
                                               std::uint64_t units, std::span<const Chosen> taken) {
  for (Segment* segment : segments) {
    if (is_taken(*segment, taken, false)) continue;
    if (const auto extent = segment->allocator.allocate(units, kNone)) {
      return Chosen{segment, *extent};
    }
  }
  return std::nullopt;
}

}  // namespace mooncake::store::master
