// Extents that rest: their owner has refused a write since readers have pinned what lies there, and
// would refuse the next one, too; or it was not reached.
#include "store/master/core_state.h"

namespace mooncake::store::master {

// Takes the extent from the entry. False when the list is full, or there is none.
bool Core::State::set_aside(Entry& entry, std::size_t replica) {
  if (resting.size() >= kMaxResting || entry.extents[replica] == kNoExtent) return false;
  const std::uint32_t handle = entry.placements[replica].segment;
  Segment& segment = *segments.find(handle);
  segment.allocator.set_owner(entry.extents[replica], kNoEntry);
  ++segment.resting;
  resting.push_back(
      {handle, entry.extents[replica], now + static_cast<std::uint64_t>(kRest.count())});
  entry.extents[replica] = kNoExtent;
  resting_bytes += units_for(entry.size) * memory::kExtentUnit;
  ++totals.resting_extents;
  return true;
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
  const std::uint64_t bytes = segment.allocator.units(extent) * memory::kExtentUnit;
  totals.allocated_bytes -= bytes;
  resting_bytes -= bytes;
  segment.allocator.free(extent);
  --segment.resting;
  --totals.resting_extents;
}

}  // namespace mooncake::store::master
