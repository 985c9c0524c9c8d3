#include "store/master/allocation/placement.h"

#include <algorithm>
#include <array>

namespace mooncake::store::master {

namespace {

constexpr std::size_t kSample = 6;  // of kFreeRatioFirst

double free_ratio(const Segment* segment) {
  return static_cast<double>(segment->allocator.free_units()) /
         static_cast<double>(segment->allocator.capacity());
}

}  // namespace

bool Placer::Barred::has(const Segment& segment) const {
  if (segment.leaving() || (resting && segment.resting > 0)) return true;
  return std::any_of(taken.begin(), taken.end(), [&](const Chosen& chosen) {
    return chosen.segment == &segment || (hosts && chosen.segment->host_hash == segment.host_hash);
  });
}

std::optional<Placer::Chosen> Placer::try_one(Segment& segment, std::uint64_t units,
                                              const Barred& barred) {
  if (barred.has(segment)) return std::nullopt;
  const auto extent = segment.allocator.allocate(units, kNone);
  if (!extent) return std::nullopt;
  return Chosen{&segment, *extent};
}

std::size_t Placer::draw(std::span<Segment* const> segments) {
  if (segments.size() == 1) return 0;
  const std::size_t a = random_.below(segments.size());
  const std::size_t b = random_.below(segments.size());
  return segments[a]->allocator.free_units() >= segments[b]->allocator.free_units() ? a : b;
}

std::optional<Placer::Chosen> Placer::place(SegmentTable& table, std::uint64_t units,
                                            const PlacementWishes& wishes,
                                            std::span<const Chosen> taken) {
  for (const bool resting : {true, false}) {
    if (resting && !wishes.spare_resting) continue;
    const Barred barred{taken, false, resting};
    if (auto chosen = place_by_wishes(table, units, wishes, barred)) return chosen;
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::place_by_wishes(SegmentTable& table, std::uint64_t units,
                                                      const PlacementWishes& wishes,
                                                      Barred barred) {
  for (const std::string_view name : wishes.preferred) {
    if (auto chosen = try_all(table.all_named(name), units, barred)) return chosen;
  }
  const bool first = barred.taken.empty();
  if (first && (wishes.same_node || strategy_ == AllocationStrategy::kLocalFirst)) {
    if (auto chosen = place_near(table, units, wishes, barred)) return chosen;
  }
  const std::span<Segment* const> segments = table.open();
  if (segments.empty()) return std::nullopt;
  for (const bool other_host : {true, false}) {
    if (other_host && first) continue;
    barred.hosts = other_host;
    if (strategy_ == AllocationStrategy::kFreeRatioFirst) {
      if (auto chosen = place_by_free_ratio(segments, units, barred)) return chosen;
    }
    if (auto chosen = place_anywhere(segments, units, barred)) return chosen;
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::place_near(SegmentTable& table, std::uint64_t units,
                                                 const PlacementWishes& wishes,
                                                 const Barred& barred) {
  for (const std::uint32_t handle : wishes.own) {
    if (auto chosen = try_one(*table.find(handle), units, barred)) return chosen;
  }
  return try_all(table.on_host(wishes.host), units, barred);
}

std::optional<Placer::Chosen> Placer::place_by_free_ratio(std::span<Segment* const> segments,
                                                          std::uint64_t units,
                                                          const Barred& barred) {
  std::array<Segment*, kSample> sample{};
  const std::size_t size = std::min(kSample, segments.size());
  const std::size_t start = random_.below(segments.size());
  for (std::size_t i = 0; i < size; ++i)
    sample[i] = segments[(start + i) % segments.size()];
  std::stable_sort(sample.begin(), sample.begin() + size, [](const Segment* a, const Segment* b) {
    return free_ratio(a) > free_ratio(b);
  });
  return try_all(std::span(sample).first(size), units, barred);
}

std::optional<Placer::Chosen> Placer::place_anywhere(std::span<Segment* const> segments,
                                                     std::uint64_t units, const Barred& barred) {
  const std::size_t start = draw(segments);
  for (std::size_t tried = 0; tried < segments.size(); ++tried) {
    Segment& segment = *segments[(start + tried) % segments.size()];
    if (auto chosen = try_one(segment, units, barred)) return chosen;
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::try_all(std::span<Segment* const> segments,
                                              std::uint64_t units, const Barred& barred) {
  for (Segment* segment : segments) {
    if (auto chosen = try_one(*segment, units, barred)) return chosen;
  }
  return std::nullopt;
}

std::optional<Placer::Chosen> Placer::place_in(std::span<Segment* const> segments,
                                               std::uint64_t units, std::span<const Chosen> taken) {
  return try_all(segments, units, Barred{taken});
}

}  // namespace mooncake::store::master
