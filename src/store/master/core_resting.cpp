// Extents that rest: their owner has refused a write since readers have pinned what lies there, and
// would refuse the next one, too.
#include "store/master/core_state.h"

namespace mooncake::store::master {

// Takes the entry's extents from it; what finds no place in the list stays.
void Core::State::set_aside(Entry& entry) {
  const std::uint64_t until = now + static_cast<std::uint64_t>(kRest.count());
  for (std::size_t i = 0; i < entry.replicas && resting.size() < kMaxResting; ++i) {
    if (entry.extents[i] == kNoExtent) continue;
    const std::uint32_t handle = entry.placements[i].segment;
    segments.find(handle)->allocator.set_owner(entry.extents[i], kNoEntry);
    resting.push_back({handle, entry.extents[i], until});
    entry.extents[i] = kNoExtent;
    ++totals.resting_extents;
  }
}

void Core::State::end_rests() {
  for (; !resting.empty() && resting.front().until <= now; resting.pop_front()) {
    end_rest(*segments.find(resting.front().segment), resting.front().extent);
  }
}

void Core::State::end_rests_in(Segment& segment) {
  std::erase_if(resting, [&](const Resting& each) {
    if (each.segment != segment.handle) return false;
    end_rest(segment, each.extent);
    return true;
  });
}

void Core::State::end_rest(Segment& segment, std::uint32_t extent) {
  totals.allocated_bytes -= segment.allocator.units(extent) * memory::kExtentUnit;
  segment.allocator.free(extent);
  --totals.resting_extents;
}

}  // namespace mooncake::store::master
