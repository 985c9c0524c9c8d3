// Locate, exist, remove, sweep: published objects.
#include <algorithm>
#include <utility>

#include "store/master/core_state.h"

namespace mooncake::store::master {

void describe(const Entry& entry, Effect& effect) {
  effect.version = entry.version;
  effect.size = entry.size;
  effect.replicas = entry.replicas;
  for (std::size_t i = 0; i < entry.replicas; ++i)
    effect.placements[i] = entry.placements[i];
}

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
  describe(entry, effect);
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
    drop_published(number, KeyEventKind::kRemoved);
  }
}

void Core::State::sweep(const Command& command) {
  if (command.client != ClientId{}) return numbered(command, &State::sweep_numbered);
  for (std::size_t i = 0; i < command.items.size(); ++i) {
    effects->items[i] = Effect{};
    sweep_some(command, effects->items[i]);
  }
}

void Core::State::sweep_numbered(const Item& item, Effect& effect) {
  sweep_some(item.command, effect);
}

// One that is removed costs as much as many that are looked at.
void Core::State::sweep_some(const Command& command, Effect& effect) {
  constexpr std::size_t kRemoval = 8;
  std::size_t budget = std::max<std::size_t>(command.budget, 1);
  const auto event =
      command.matches == nullptr ? KeyEventKind::kRemovedWithAll : KeyEventKind::kRemovedByPattern;
  std::uint32_t number = command.cursor;
  for (; budget > 0 && number < directory.end(); ++number) {
    if (number != command.cursor && command.enough != nullptr && (*command.enough)()) break;
    --budget;
    const Entry& entry = directory[number];
    if (entry.state != PutState::kPublished || (entry.until > now && !command.force)) continue;
    if (command.matches != nullptr && !(*command.matches)(directory.key(entry))) continue;
    drop_published(number, event);
    ++effect.size;
    budget -= std::min(budget, kRemoval);
  }
  effect.cursor = number < directory.end() ? number : kSweepEnd;
}

void Core::State::drop_published(std::uint32_t number, KeyEventKind event) {
  note(event, directory[number]);
  leave(number);
  --totals.objects;
  erase(number);
}

}  // namespace mooncake::store::master
