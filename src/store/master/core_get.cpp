// Locate, exist, remove: published objects.
#include <utility>

#include "store/master/core_state.h"

namespace mooncake::store::master {

void Core::State::lease(std::uint32_t number, Entry& entry) {
  const std::uint64_t until = now + lease_ns;
  if (entry.until == until && until != now) return;
  const std::uint64_t before = std::exchange(entry.until, until);
  Candidates* candidates = candidates_of(entry);
  if (candidates == nullptr) return;
  const std::uint64_t bytes = entry.replicas * units_for(entry.size) * memory::kExtentUnit;
  candidates->held.remove(before, bytes);
  candidates->held.add(until, bytes);
  candidates->policy->on_access(number);
}

void Core::State::locate(std::uint32_t number, Effect& effect) {
  Entry& entry = directory[number];
  entry.flags &= static_cast<std::uint8_t>(~kRemoveWanted);
  lease(number, entry);
  effect.version = entry.version;
  effect.size = entry.size;
  effect.replicas = entry.replicas;
  for (std::size_t i = 0; i < entry.replicas; ++i)
    effect.placements[i] = entry.placements[i];
}

void Core::State::exist(std::uint32_t number, Effect& effect) {
  Entry& entry = directory[number];
  if ((entry.flags & kRemoveWanted) == 0) lease(number, entry);
  effect.version = entry.version;
  effect.size = entry.size;
}

void Core::State::remove(const Item& item, Effect& effect) {
  const std::uint32_t number = directory.find(item.hash, item.item.key);
  if (number == kNoEntry) {
    effect.code = Code::kObjectNotFound;
    return;
  }
  Entry& entry = directory[number];
  if (entry.state == PutState::kGranted) {
    effect.code = Code::kReplicaNotReady;
  } else if (entry.until > now && !item.command.force) {
    entry.flags |= kRemoveWanted;
    effect.code = Code::kObjectHasLease;
  } else {
    effect.version = entry.version;
    effect.size = entry.size;
    drop_published(number, Decision::Kind::kRemoved);
  }
}

void Core::State::drop_published(std::uint32_t number, Decision::Kind kind) {
  note(kind, directory[number]);
  leave(number);
  --totals.objects;
  erase(number);
}

}  // namespace mooncake::store::master
