// Grant, publish, revoke: how an object comes into being.
#include <algorithm>
#include <chrono>

#include "store/master/core_state.h"

namespace mooncake::store::master {

namespace {

// Objects that may be evicted to give an object another replica than its first.
constexpr int kVictimsForMoreReplicas = 16;

}  // namespace

void Core::State::grant(const Item& item, Effect& effect) {
  const std::uint64_t size = item.item.size;
  if (size == 0 || item.command.replicas == 0) {
    effect.code = Code::kInvalidArgument;
    return;
  }
  if (const std::uint32_t there = directory.find(item.hash, item.item.key); there != kNoEntry) {
    const Entry& entry = directory[there];
    if (entry.state == PutState::kPublished || entry.until > now) {
      effect.code = Code::kObjectExists;
      return;
    }
    release_grant(there, Decision::Kind::kGrantExpired);
  }
  std::vector<Placer::Chosen>& chosen = grant_scratch;
  const std::size_t replicas = std::min<std::size_t>(item.command.replicas, kMaxReplicas);
  const std::uint64_t units = units_for(std::min(size, kMaxSegment + 1));
  effect.code = find_room(units, replicas, chosen);
  if (effect.code != Code::kOk) return tell_shortage(units);
  const std::uint32_t number =
      next_version(effect.version) ? directory.insert(item.hash, item.item.key) : kNoEntry;
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
  entry.sequence = item.number;
  entry.state = PutState::kGranted;
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

// kOk with one to `replicas` extents, whose owner is still to be set.
Code Core::State::find_room(std::uint64_t units, std::size_t replicas,
                            std::vector<Placer::Chosen>& chosen) {
  chosen.clear();
  if (units > segments.largest_units()) return Code::kNoSpace;
  int victims = 0;
  bool evicting = false;
  while (chosen.size() < replicas) {
    if (!evicting) {
      if (const auto place = placer.place(segments.all(), units, chosen)) {
        chosen.push_back(*place);
        continue;
      }
    }
    if (chosen.size() == segments.all().size()) break;
    if (chosen.empty() && !evicting) {
      if (const Code code = may_make_room(units); code != Code::kOk) return code;
    }
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
  const auto patience = static_cast<std::uint64_t>(options.preparation_patience.count());
  for (const Segment* segment : segments.all()) {
    const auto grown = static_cast<std::uint64_t>(segment->grown.time_since_epoch().count());
    if (segment->allocator.prepared() < segment->allocator.capacity() && now < grown + patience &&
        segment->allocator.fits_when_prepared(units)) {
      return Code::kSpaceInPreparation;
    }
  }
  const std::uint64_t free_bytes = totals.prepared_bytes - totals.allocated_bytes;
  const std::uint64_t evictable = published_bytes - held.held();
  const bool enough = free_bytes + evictable >= units * memory::kExtentUnit;
  return enough ? Code::kOk : Code::kNoSpace;
}

// Evicts one object and takes the room if it has become large enough. False when nothing may be
// evicted.
bool Core::State::evict_for(std::uint64_t units, std::vector<Placer::Chosen>& chosen) {
  evict_scratch.clear();
  if (!evict_one(&evict_scratch)) return false;
  if (const auto place = placer.place_in(evict_scratch, units, chosen)) chosen.push_back(*place);
  return true;
}

void Core::State::tell_shortage(std::uint64_t units) {
  ++totals.grant_shortages;
  if (effects->shortage) return;
  Shortage shortage;
  shortage.needed = units * memory::kExtentUnit;
  shortage.evictable = published_bytes - held.held();
  shortage.held = totals.allocated_bytes - shortage.evictable;
  shortage.unprepared = totals.capacity_bytes - totals.prepared_bytes;
  effects->shortage = shortage;
}

// Whether the item names the write that is open for its key. kObjectExists: it has been published.
Code Core::State::check_writer(const Item& item, std::uint32_t number) const {
  if (number == kNoEntry) return Code::kObjectNotFound;
  const Entry& entry = directory[number];
  if (entry.version != item.item.version) return Code::kInvalidWrite;
  if (entry.writer != item.client.id) return Code::kIllegalClient;
  return entry.state == PutState::kPublished ? Code::kObjectExists : Code::kOk;
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
  const std::uint32_t number = directory.find(item.hash, item.item.key);
  effect.code = check_writer(item, number);
  if (effect.code == Code::kObjectExists) {
    // Published before, under another number.
    effect.code = Code::kOk;
  } else {
    if (effect.code == Code::kOk) effect.code = check_replicas(item, directory[number]);
    if (effect.code != Code::kOk) return;
    Entry& entry = directory[number];
    for (std::size_t i = 0; i < entry.replicas; ++i) {
      if (item.item.incarnations[i] == base::SegmentIncarnation{}) free_replica(entry, i);
    }
    close_gaps(entry);
    unlink_open(number);
    entry.state = PutState::kPublished;
    entry.until = now;
    policy->on_publish(number);
    ++totals.objects;
    published_bytes += bytes_of(entry);
    note(Decision::Kind::kPublished, entry);
  }
  effect.version = directory[number].version;
  effect.size = directory[number].size;
}

void Core::State::revoke(const Item& item, Effect& effect) {
  const std::uint32_t number = directory.find(item.hash, item.item.key);
  effect.code = check_writer(item, number);
  if (effect.code == Code::kObjectExists) effect.code = Code::kInvalidWrite;
  if (effect.code == Code::kOk) release_grant(number, Decision::Kind::kRevoked);
}

}  // namespace mooncake::store::master
