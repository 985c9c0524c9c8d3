#include "store/master/allocation/placement.h"

#include <algorithm>
#include <array>

namespace mooncake::store::master {

namespace {

constexpr std::size_t kSample = 6;  // of kFreeRatioFirst

bool is_taken(const Segment& segment, std::span<const Placer::Chosen> taken, bool by_host) {
  return std::any_of(taken.begin(), taken.end(), [&](const Placer::Chosen& chosen) {
    return chosen.segment == &segment ||
           (by_host && chosen.segment->host_hash == segment.host_hash);
  });
}

std::optional<Placer::Chosen> try_one(Segment& segment, std::uint64_t units,
                                      std::span<const Placer::Chosen> taken, bool by_host) {
  if (segment.leaving() || is_taken(segment, taken, by_host)) return std::nullopt;
  const auto extent = segment.allocator.allocate(units, kNone);
  if (!extent) return std::nullopt;
  return Placer::Chosen{&segment, *extent};
}

double free_ratio(const Segment* segment) {
  return static_cast<double>(segment->allocator.free_units()) /
         static_cast<double>(segment->allocator.capacity());
}

}  // namespace

std::size_t Placer::draw(std::span<Segment* const> segments) {
  if (segments.size() == 1) return 0;
  const std::size_t a = random_.below(segments.size());
  const std::size_t b = random_.below(segments.size());
  return segments[a]->allocator.free_units() >= segments[b]->allocator.free_units() ? a : b;
}

std::optional<Placer::Chosen> Placer::place(SegmentTable& table, std::uint64_t units,
                                            const PlacementWishes& wishes,
                                            std::span<const Chosen> taken) {
  for (const std::string_view name : wishes.preferred) {
    if (auto chosen = place_in(table.all_named(name), units, taken)) return chosen;
  }
  if (taken.empty() && (wishes.same_node || strategy_ == AllocationStrategy::kLocalFirst)) {
    if (auto chosen = place_near(table, units, wishes)) return chosen;
  }
  const std::span<Segment* const> segments = table.open();
  if (segments.empty()) return std::nullopt;
  for (const bool other_host : {true, false}) {
    if (other_host && taken.empty()) continue;
    if (strategy_ == AllocationStrategy::kFreeRatioFirst) {
      if (auto chosen = place_by_free_ratio(segments, units, taken, other_host)) return chosen;
    }
    if (auto chosen = place_anywhere(segments, units, taken, other_host)) return chosen;
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::place_near(SegmentTable& table, std::uint64_t units,
                                                 const PlacementWishes& wishes) {
  for (const std::uint32_t handle : wishes.own) {
    if (auto chosen = try_one(*table.find(handle), units, {}, false)) return chosen;
  }
  return place_in(table.on_host(wishes.host), units, {});
}

std::optional<Placer::Chosen> Placer::place_by_free_ratio(std::span<Segment* const> segments,
                                                          std::uint64_t units,
                                                          std::span<const Chosen> taken,
                                                          bool other_host) {
  std::array<Segment*, kSample> sample{};
  const std::size_t size = std::min(kSample, segments.size());
  const std::size_t start = random_.below(segments.size());
  for (std::size_t i = 0; i < size; ++i)
    sample[i] = segments[(start + i) % segments.size()];
  std::stable_sort(sample.begin(), sample.begin() + size, [](const Segment* a, const Segment* b) {
    return free_ratio(a) > free_ratio(b);
  });
  for (std::size_t i = 0; i < size; ++i) {
    if (auto chosen = try_one(*sample[i], units, taken, other_host)) return chosen;
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::place_anywhere(std::span<Segment* const> segments,
                                                     std::uint64_t units,
                                                     std::span<const Chosen> taken,
                                                     bool other_host) {
  const std::size_t start = draw(segments);
  for (std::size_t tried = 0; tried < segments.size(); ++tried) {
    Segment& segment = *segments[(start + tried) % segments.size()];
    if (auto chosen = try_one(segment, units, taken, other_host)) return chosen;
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::place_in(std::span<Segment* const> segments,
                                               std::uint64_t units, std::span<const Chosen> taken) {
  for (Segment* segment : segments) {
    if (auto chosen = try_one(*segment, units, taken, false)) return chosen;
  }
  return std::nullopt;
}

}  // namespace mooncake::store::master
