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
  const bool cost_victims = (entry.flags & kCostVictims) != 0;
  entry.flags &= static_cast<std::uint8_t>(~kCostVictims);
  if (cost_victims) ++in_vain[entry.hash_high];
  const std::uint64_t until = now + static_cast<std::uint64_t>(kRest.count());
  resting.push_back({handle, entry.extents[replica], until, entry.hash_high, cost_victims});
  entry.extents[replica] = kNoExtent;
  resting_bytes += units_for(entry.size) * memory::kExtentUnit;
  ++totals.resting_extents;
  return true;
}

void Core::State::end_rests() {
  for (; !resting.empty() && resting.front().until <= now; resting.pop_front()) {
    end_rest(resting.front());
  }
}

void Core::State::end_rests_in(Segment& segment) {
  std::erase_if(resting, [&](const Resting& each) {
    if (each.segment != segment.handle) return false;
    end_rest(each);
    return true;
  });
}

void Core::State::end_rest(const Resting& rest) {
  Segment& segment = *segments.find(rest.segment);
  const std::uint64_t bytes = segment.allocator.units(rest.extent) * memory::kExtentUnit;
  totals.allocated_bytes -= bytes;
  resting_bytes -= bytes;
  segment.allocator.free(rest.extent);
  --segment.resting;
  --totals.resting_extents;
  if (!rest.cost_victims) return;
  const auto grants = in_vain.find(rest.hash_high);
  if (--grants->second == 0) in_vain.erase(grants);
}

// So many victims have not helped this key that another one is not worth it.
bool Core::State::evicts_in_vain(const base::Hash128& key) const {
  const auto grants = in_vain.find(key.high);
  return grants != in_vain.end() && grants->second >= kMostGrantsInVain;
}

}  // namespace mooncake::store::master
