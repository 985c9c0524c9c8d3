// Grant, publish, revoke: how an object comes into being.
#include <algorithm>
#include <chrono>

#include "store/master/core_state.h"

namespace mooncake::store::master {

namespace {

// Objects that may be evicted to give an object another replica than its first.
constexpr int kVictimsForMoreReplicas = 16;

// Whether another replica could lie there.
bool could_take(const Segment& segment, std::uint64_t units,
                const std::vector<Placer::Chosen>& chosen) {
  if (segment.leaving() || segment.allocator.capacity() < units) return false;
  return std::none_of(chosen.begin(), chosen.end(),
                      [&](const Placer::Chosen& taken) { return taken.segment == &segment; });
}

}  // namespace

// A time for a pin that is not asked for, or too long a time, is a mistake of the caller's.
Code Core::State::check_terms(const GrantTerms& terms) const {
  if (!terms.soft_pin_ttl) return Code::kOk;
  const bool fits = terms.soft_pin == SoftPin::kEnable &&
                    *terms.soft_pin_ttl >= base::Duration::zero() &&
                    *terms.soft_pin_ttl <= options.max_soft_pin_ttl;
  return fits ? Code::kOk : Code::kInvalidArgument;
}

// Whether one more write of a key may be opened beside its entries, of which those whose time is
// over are given up.
Code Core::State::make_way(const GrantTerms& terms, std::uint32_t first) {
  std::size_t open_writes = 0;
  for (std::uint32_t number = first; number != kNoEntry;) {
    const Entry& entry = directory[number];
    const std::uint32_t next = entry.other;
    if (entry.state == PutState::kGranted && entry.until <= now) {
      release_grant(number, KeyEventKind::kWriteTimedOut);
    } else if (!terms.upsert) {
      return Code::kObjectExists;
    } else if (entry.state == PutState::kGranted) {
      ++open_writes;
    }
    number = next;
  }
  return open_writes < kMaxWritesOfOneKey ? Code::kOk : Code::kBusy;
}

void Core::State::note_terms(const GrantTerms& terms, Entry& entry) const {
  using std::chrono::milliseconds;
  if (terms.upsert) entry.flags |= kReplaces;
  if (terms.hard_pin) entry.flags |= kHardPinned;
  if (terms.soft_pin == SoftPin::kDisable) entry.flags |= kSoftPinUnwanted;
  if (terms.soft_pin != SoftPin::kEnable) return;
  entry.flags |= kSoftPinWanted;
  entry.open.soft_pin_ms = static_cast<std::uint32_t>(
      std::chrono::ceil<milliseconds>(terms.soft_pin_ttl.value_or(options.soft_pin_ttl)).count());
}

void Core::State::grant(const Item& item, Effect& effect) {
  const std::uint64_t size = item.item.size;
  const GrantTerms& terms = item.command.terms;
  end_rests();
  effect.code = check_terms(terms);
  if (size == 0 || item.command.replicas == 0) effect.code = Code::kInvalidArgument;
  if (effect.code != Code::kOk) return;
  const std::uint32_t there = directory.find(item.hash, item.item.key);
  if (there != kNoEntry) effect.code = make_way(terms, there);
  if (effect.code != Code::kOk) return;
  std::vector<Placer::Chosen>& chosen = grant_scratch;
  const std::size_t replicas = std::min<std::size_t>(item.command.replicas, kMaxReplicas);
  const std::uint64_t units = units_for(std::min(size, kMaxSegment + 1));
  const std::uint64_t evicted = totals.evicted_objects;
  effect.code = find_room(units, item, chosen);
  if (effect.code != Code::kOk) return tell_shortage(units);
  // What was there may have been given up by now, or evicted.
  const std::uint32_t first =
      there == kNoEntry ? kNoEntry : directory.find(item.hash, item.item.key);
  std::uint32_t number = kNoEntry;
  if (next_version(effect.version)) {
    number = first == kNoEntry ? directory.insert(item.hash, item.item.key)
                               : directory.insert_behind(first);
  }
  if (number == kNoEntry) {
    for (const auto& place : chosen)
      place.segment->allocator.free(place.extent.handle);
    effect = Effect{};
    effect.code = Code::kBusy;
    return;
  }
  Entry& entry = directory[number];
  entry.version = effect.version;
  entry.size = effect.size = size;
  entry.until = now + static_cast<std::uint64_t>(options.grant_ttl.count());
  entry.writer = item.client.id;
  entry.open.number = static_cast<std::uint32_t>(item.number);
  entry.state = PutState::kGranted;
  note_terms(terms, entry);
  if (totals.evicted_objects != evicted) entry.flags |= kCostVictims;
  entry.replicas = effect.replicas = static_cast<std::uint8_t>(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    entry.placements[i] = {chosen[i].segment->handle, chosen[i].extent.unit};
    entry.extents[i] = chosen[i].extent.handle;
    effect.placements[i] = entry.placements[i];
    chosen[i].segment->allocator.set_owner(chosen[i].extent.handle, number);
  }
  totals.allocated_bytes += bytes_of(entry);
  if (chosen.size() < replicas) ++totals.partial_grants;
  link_open(number);
}

// kOk with one to as many extents as replicas are asked for, whose owner is still to be set.
Code Core::State::find_room(std::uint64_t units, const Item& item,
                            std::vector<Placer::Chosen>& chosen) {
  const std::size_t replicas = std::min<std::size_t>(item.command.replicas, kMaxReplicas);
  PlacementWishes wishes;
  wishes.preferred = item.command.terms.preferred;
  wishes.same_node = item.command.terms.prefer_same_node;
  wishes.own = item.client.segments;
  wishes.host = item.client.host_hash;
  wishes.spare_resting = !resting.empty();
  chosen.clear();
  if (units > segments.largest_units()) return Code::kNoSpace;
  int victims = 0;
  bool evicting = false;
  while (chosen.size() < replicas) {
    if (!evicting) {
      if (const auto place = placer.place(segments, units, wishes, chosen)) {
        chosen.push_back(*place);
        continue;
      }
    }
    if (chosen.empty() && !evicting) {
      if (const Code code = may_make_room(units); code != Code::kOk) return code;
    }
    if (!chosen.empty() && !evicting && !may_evict_for_another(units, chosen)) break;
    if (!evicting && evicts_in_vain(item.hash)) break;
    if (!chosen.empty() && victims++ == kVictimsForMoreReplicas) break;
    if (!evicting) ++totals.eviction_attempts;
    // From here on only where something has been evicted can there be more room than before.
    evicting = true;
    const std::size_t before = chosen.size();
    if (!evict_for(units, chosen)) break;
    evicting = chosen.size() == before;
  }
  return chosen.empty() ? Code::kNoSpace : Code::kOk;
}

// Whether to evict for an object that finds no room.
Code Core::State::may_make_room(std::uint64_t units) {
  std::uint64_t free_units = 0;
  for (const Segment* segment : segments.open()) {
    free_units += segment->allocator.free_units();
    if (is_coming(*segment, units)) return Code::kSpaceInPreparation;
  }
  const bool enough =
      free_units * memory::kExtentUnit + evictable_bytes() >= units * memory::kExtentUnit;
  return enough ? Code::kOk : Code::kNoSpace;
}

// Whether its owner is preparing enough of it.
bool Core::State::is_coming(const Segment& segment, std::uint64_t units) const {
  const auto patience = static_cast<std::uint64_t>(options.preparation_patience.count());
  const auto grown = static_cast<std::uint64_t>(segment.grown.time_since_epoch().count());
  const SegmentAllocator& allocator = segment.allocator;
  return allocator.prepared() < allocator.capacity() && now < grown + patience &&
         allocator.fits_when_prepared(units);
}

// A further replica is not worth an object where room for one will be there soon, or can't be.
bool Core::State::may_evict_for_another(std::uint64_t units,
                                        const std::vector<Placer::Chosen>& chosen) const {
  bool any = false;
  for (const Segment* segment : segments.open()) {
    if (!could_take(*segment, units, chosen)) continue;
    if (is_coming(*segment, units)) return false;
    any = true;
  }
  return any;
}

// Evicts one object and takes the room if it has become large enough. False when nothing may be
// evicted.
bool Core::State::evict_for(std::uint64_t units, std::vector<Placer::Chosen>& chosen) {
  evict_scratch.clear();
  // A further replica is not worth an object that is to be kept.
  const std::uint32_t victim = next_victim(chosen.empty());
  if (victim == kNoEntry) return false;
  bool helps = chosen.empty();
  const Entry& entry = directory[victim];
  for (std::size_t i = 0; i < entry.replicas; ++i) {
    evict_scratch.push_back(segments.find(entry.placements[i].segment));
    helps = helps || could_take(*evict_scratch.back(), units, chosen);
  }
  if (!helps) return false;
  evict(victim, KeyEventKind::kEvictedForRoom);
  if (const auto place = placer.place_in(evict_scratch, units, chosen)) chosen.push_back(*place);
  return true;
}

void Core::State::tell_shortage(std::uint64_t units) {
  ++totals.grant_shortages;
  if (effects->shortage) return;
  Shortage shortage;
  shortage.needed = units * memory::kExtentUnit;
  shortage.evictable = evictable_bytes();
  shortage.pinned = kept_bytes + (options.evict_soft_pinned ? 0 : soft_pinned.evictable());
  shortage.resting = resting_bytes;
  shortage.held = totals.allocated_bytes - shortage.evictable - shortage.pinned - shortage.resting;
  shortage.unprepared = totals.capacity_bytes - totals.prepared_bytes;
  effects->shortage = shortage;
}

// The write that the item names, open or published by now, and the first entry of its key.
Code Core::State::find_write(const Item& item, std::uint32_t& first, std::uint32_t& number) const {
  first = number = directory.find(item.hash, item.item.key);
  if (number == kNoEntry) return Code::kObjectNotFound;
  while (number != kNoEntry && directory[number].version != item.item.version)
    number = directory[number].other;
  if (number == kNoEntry) return Code::kInvalidWrite;
  return directory[number].writer == item.client.id ? Code::kOk : Code::kIllegalClient;
}

Code Core::State::check_replicas(const Item& item, const Entry& entry) const {
  const auto incarnations = item.item.incarnations;
  if (incarnations.size() != entry.replicas) return Code::kInvalidArgument;
  bool any = false;
  for (std::size_t i = 0; i < incarnations.size(); ++i) {
    if (incarnations[i] == base::SegmentIncarnation{}) continue;
    const Segment* segment = segments.find(entry.placements[i].segment);
    if (entry.extents[i] == kNoExtent || segment == nullptr ||
        segment->address.incarnation != incarnations[i]) {
      return Code::kInvalidReplica;
    }
    any = true;
  }
  return any ? Code::kOk : Code::kInvalidReplica;
}

void Core::State::publish(const Item& item, Effect& effect) {
  std::uint32_t first = kNoEntry;
  std::uint32_t number = kNoEntry;
  effect.code = find_write(item, first, number);
  if (effect.code != Code::kOk) return;
  Entry& entry = directory[number];
  // Else it has been published before, under another number.
  if (entry.state == PutState::kGranted) {
    const bool taken = directory[first].state == PutState::kPublished;
    if (taken && (entry.flags & kReplaces) == 0) {
      effect.code = Code::kObjectExists;
      return release_grant(number, KeyEventKind::kWriteOvertaken);
    }
    effect.code = check_replicas(item, entry);
    if (effect.code != Code::kOk) return;
    for (std::size_t i = 0; i < entry.replicas; ++i) {
      const bool written = item.item.incarnations[i] != base::SegmentIncarnation{};
      if (!written && !set_aside(entry, i)) free_replica(entry, i);
    }
    make_visible(number, first);
  }
  effect.version = entry.version;
  effect.size = entry.size;
}

// `first` is what the key's readers have found so far, if that is published.
void Core::State::make_visible(std::uint32_t number, std::uint32_t first) {
  Entry& entry = directory[number];
  const bool replaces = directory[first].state == PutState::kPublished;
  close_gaps(entry);
  unlink_open(number);
  settle_pins(entry, replaces ? &directory[first] : nullptr);
  if (replaces) drop_published(first, KeyEventKind::kReplaced);
  if (number != first) directory.lead(number);
  entry.state = PutState::kPublished;
  entry.until = now;
  ++totals.objects;
  enter(number);
  note(KeyEventKind::kPublished, entry);
}

// From what the grant asked for and what the replaced object has to what the new one is.
void Core::State::settle_pins(Entry& entry, const Entry* replaced) const {
  constexpr std::uint64_t kMs = 1'000'000;
  std::uint64_t until = replaced == nullptr ? 0 : replaced->soft_pin_until;
  if (replaced != nullptr) entry.flags |= replaced->flags & kHardPinned;
  if ((entry.flags & kSoftPinWanted) != 0) until = now + entry.open.soft_pin_ms * kMs;
  const bool none = (entry.flags & (kSoftPinUnwanted | kHardPinned)) != 0 || until <= now;
  entry.flags &= kHardPinned;
  if (!none) entry.flags |= kSoftPinned;
  if (lies_in_leaving(entry)) entry.flags |= kLeaving;
  entry.soft_pin_until = none ? 0 : until;
}

void Core::State::revoke(const Item& item, Effect& effect) {
  std::uint32_t first = kNoEntry;
  std::uint32_t number = kNoEntry;
  effect.code = find_write(item, first, number);
  if (effect.code != Code::kOk) return;
  if (directory[number].state == PutState::kPublished) {
    effect.code = Code::kInvalidWrite;
  } else {
    Entry& entry = directory[number];
    for (std::size_t i = 0; item.command.set_aside && i < entry.replicas; ++i)
      set_aside(entry, i);
    release_grant(number, KeyEventKind::kWriteRevoked);
  }
}

}  // namespace mooncake::store::master
