// Mount, unmount, heartbeat: clients and the memory they give.
#include <algorithm>
#include <cassert>

#include "base/text.h"
#include "store/master/core_state.h"

namespace mooncake::store::master {

namespace {

constexpr std::size_t kMaxClients = 65536;
// How many departed clients are remembered, and for how long: no message is under way longer.
constexpr std::size_t kMaxDeparted = 1024;
constexpr std::uint64_t kRememberNs = std::uint64_t{600} * 1'000'000'000;
// A client that has seen an epoch so high is mistaken or hostile: there must be room above it.
constexpr std::uint32_t kHighestEpoch = 0xFFFF0000;

bool is_name(std::string_view text) { return base::name_fault(text, kMaxName).empty(); }

bool is_sound(const MountedSegment& segment) {
  const SegmentAddress& address = segment.address;
  return address.id.valid() && address.incarnation != base::SegmentIncarnation{} &&
         address.owner != base::Incarnation{} && is_name(address.name) &&
         (address.host.empty() || is_name(address.host)) && address.size > 0 &&
         address.size <= kMaxSegment && address.size % memory::kExtentUnit == 0 &&
         address.base + address.size >= address.base && segment.prepared <= address.size;
}

bool is_same(const SegmentAddress& a, const SegmentAddress& b) {
  return a.id == b.id && a.incarnation == b.incarnation && a.name == b.name && a.host == b.host &&
         a.owner == b.owner && a.base == b.base && a.size == b.size && a.region_key == b.region_key;
}

// Of its segments, or of its name, host:port.
std::uint64_t host_of(const Command& command) {
  if (!command.segments.empty() && !command.segments.front().address.host.empty()) {
    return SegmentTable::host_hash(command.segments.front().address.host);
  }
  return SegmentTable::host_hash(command.client_name.substr(0, command.client_name.rfind(':')));
}

}  // namespace

// The versions that will be granted must be above all that any owner has seen.
Code Core::State::raise_epoch_above(Epoch seen) {
  if (seen < epoch) return Code::kOk;
  const auto wanted = static_cast<std::uint32_t>(seen);
  if (wanted >= kHighestEpoch) return Code::kInvalidArgument;
  epoch_wanted = std::max<std::uint64_t>(epoch_wanted, std::uint64_t{wanted} + 1);
  if (seen >= epoch_limit) return Code::kBusy;
  epoch = static_cast<Epoch>(wanted + 1);
  sequence = 0;
  return Code::kOk;
}

Client* Core::State::admit(ClientId id) {
  if (Client* known = clients.find(id); known != nullptr && known->mounted) return known;
  if (clients.mounted.size() >= kMaxClients) return nullptr;
  auto& slot = clients.all[static_cast<std::uint64_t>(id)];
  if (slot == nullptr) {
    slot = std::make_unique<Client>(id, clients.budget);
  } else {
    clients.departed.erase(slot->position);
  }
  slot->mounted = true;
  slot->position = clients.mounted.insert(clients.mounted.end(), slot.get());
  totals.clients = clients.mounted.size();
  return slot.get();
}

void Core::State::alive(Client& client) {
  client.seen = now;
  clients.mounted.splice(clients.mounted.end(), clients.mounted, client.position);
}

void Core::State::mount(const Command& command) {
  if (command.client == ClientId{} ||
      (!command.client_name.empty() && !is_name(command.client_name))) {
    return refuse(command, Code::kInvalidArgument);
  }
  const Client* known = clients.find(command.client);
  if (known != nullptr && command.sequence < known->sequence) {
    return refuse(command, Code::kStaleCommand);
  }
  // Who has mounted here before has seen our epoch here; all others that have must have it from an
  // earlier life of ours. To rise for each of the former would turn away the heartbeats of all
  // others, who would then expire, and mount again themselves.
  const bool learned_here = known != nullptr && command.newest_epoch == epoch;
  if (!learned_here) {
    const Code code = raise_epoch_above(command.newest_epoch);
    if (code != Code::kOk) return refuse(command, code);
  }
  Client* client = admit(command.client);
  if (client == nullptr) return refuse(command, Code::kBusy);
  client->sequence = command.sequence;
  client->name = command.client_name;
  client->host_hash = host_of(command);
  alive(*client);
  unmount_unnamed(*client, command);
  for (std::size_t i = 0; i < command.segments.size(); ++i) {
    const MountedSegment& wanted = command.segments[i];
    Effect& effect = effects->items[i];
    effect = Effect{};
    effect.code = check_segment(command, i);
    if (effect.code != Code::kOk) continue;
    Segment* segment = segments.find(wanted.address.id);
    if (segment == nullptr) {
      segment = segments.add(client->id, wanted.address);
      if (segment == nullptr) {
        effect.code = Code::kBusy;
        continue;
      }
      client->segments.push_back(segment->handle);
      totals.capacity_bytes += segment->allocator.capacity() * memory::kExtentUnit;
      ++totals.segments;
      segment->grown = TimePoint(base::Duration(now));
    }
    prepare(*segment, wanted.prepared);
  }
}

// After unmount_unnamed(): what is still there under this id is another client's, or the very same.
Code Core::State::check_segment(const Command& command, std::size_t index) {
  const MountedSegment& wanted = command.segments[index];
  if (!is_sound(wanted)) return Code::kInvalidArgument;
  if (const Segment* there = segments.find(wanted.address.id)) {
    if (there->client != command.client) return Code::kSegmentExists;
    return is_same(there->address, wanted.address) ? Code::kOk : Code::kInvalidArgument;
  }
  const Segment* namesake = segments.named(wanted.address.name);
  const bool other_engine = namesake != nullptr && namesake->address.owner != wanted.address.owner;
  return other_engine ? Code::kSegmentExists : Code::kOk;
}

void Core::State::unmount_unnamed(Client& client, const Command& command) {
  const std::vector<std::uint32_t> handles = client.segments;
  for (const std::uint32_t handle : handles) {
    Segment& segment = *segments.find(handle);
    const bool named =
        std::any_of(command.segments.begin(), command.segments.end(), [&](const auto& wanted) {
          return wanted.address.id == segment.address.id &&
                 wanted.address.incarnation == segment.address.incarnation;
        });
    if (named) continue;
    const bool anew = std::any_of(
        command.segments.begin(), command.segments.end(),
        [&](const auto& wanted) { return wanted.address.name == segment.address.name; });
    drop_segment(client, segment,
                 anew ? KeyEventKind::kSegmentMountedAnew : KeyEventKind::kSegmentUnmounted);
  }
}

void Core::State::prepare(Segment& segment, std::uint64_t bytes) {
  const std::uint64_t before = segment.allocator.prepared();
  segment.allocator.prepare(std::min(bytes, segment.address.size) / memory::kExtentUnit);
  const std::uint64_t more = segment.allocator.prepared() - before;
  if (more == 0) return;
  totals.prepared_bytes += more * memory::kExtentUnit;
  segment.grown = TimePoint(base::Duration(now));
}

// What lies only there is of no use to eviction from now on.
void Core::State::begin_leaving(Segment& segment) {
  leaving.push_back(segment.handle);
  segment.allocator.for_each([&](std::uint32_t extent) {
    const std::uint32_t number = segment.allocator.owner(extent);
    if (number != kNoEntry && directory[number].state == PutState::kPublished) note_leaving(number);
  });
}

bool Core::State::lies_in_leaving(const Entry& entry) const {
  if (leaving.empty()) return false;
  return std::all_of(entry.placements, entry.placements + entry.replicas,
                     [&](const auto& place) { return segments.find(place.segment)->leaving(); });
}

// Every object there loses a replica, and is lost with its last one. O(extents of the segment).
void Core::State::drop_segment(Client& client, Segment& segment, KeyEventKind event) {
  end_rests_in(segment);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> extents;  // owner, handle
  extents.reserve(segment.allocator.extents());
  segment.allocator.for_each(
      [&](std::uint32_t handle) { extents.emplace_back(segment.allocator.owner(handle), handle); });
  for (const auto& [number, extent] : extents)
    lose_replica(number, segment, extent, event);
  totals.capacity_bytes -= segment.allocator.capacity() * memory::kExtentUnit;
  totals.prepared_bytes -= segment.allocator.prepared() * memory::kExtentUnit;
  --totals.segments;
  std::erase(client.segments, segment.handle);
  std::erase(leaving, segment.handle);
  events.segment_gone(segment.handle, segment.address.name);
  segments.remove(segment);
}

void Core::State::lose_replica(std::uint32_t number, const Segment& segment, std::uint32_t extent,
                               KeyEventKind event) {
  Entry& entry = directory[number];
  std::size_t replica = 0;
  while (entry.placements[replica].segment != segment.handle)
    ++replica;
  assert(entry.extents[replica] == extent);
  static_cast<void>(extent);
  if (entry.state == PutState::kGranted) {
    free_replica(entry, replica);
  } else if (entry.replicas == 1) {
    ++totals.lost_objects;
    drop_published(number, event);
  } else {
    forget_bytes(entry, bytes_of(entry) / entry.replicas);
    free_replica(entry, replica);
    close_gaps(entry);
    note_leaving(number);
  }
}

// By the word of the server, which has asked who answers under their name.
void Core::State::disown(const Command& command) {
  for (const MountedSegment& dead : command.segments) {
    std::vector<ClientId> owners;
    for (const Segment* segment : segments.all_named(dead.address.name)) {
      if (segment->address.owner == dead.address.owner) owners.push_back(segment->client);
    }
    for (const ClientId id : owners) {
      Client* client = clients.find_mounted(id);
      if (client == nullptr) continue;
      depart(*client, KeyEventKind::kOwnerReplaced);
      ++totals.disowned_clients;
    }
  }
}

void Core::State::unmount(const Command& command) {
  Client* client = clients.find(command.client);
  if (client != nullptr && command.sequence < client->sequence) {
    return refuse(command, Code::kStaleCommand);
  }
  if (client != nullptr) client->sequence = command.sequence;
  for (std::size_t i = 0; i < command.segments.size(); ++i) {
    const SegmentAddress& wanted = command.segments[i].address;
    effects->items[i] = Effect{};
    Segment* segment = segments.find(wanted.id);
    if (segment == nullptr) continue;
    if (client == nullptr || segment->client != client->id) {
      effects->items[i].code = Code::kSegmentNotFound;
    } else if (segment->address.incarnation == wanted.incarnation) {
      if (command.grace <= base::Duration::zero()) {
        drop_segment(*client, *segment, KeyEventKind::kSegmentUnmounted);
        continue;
      }
      const bool again = segment->leaving();
      const std::uint64_t at = now + static_cast<std::uint64_t>(command.grace.count());
      segments.leave(*segment, again ? std::min(at, segment->leaves_at) : at);
      if (!again) begin_leaving(*segment);
    }
  }
  if (command.segments.empty() && client != nullptr && client->mounted) {
    depart(*client, KeyEventKind::kOwnerLeft);
  }
}

void Core::State::heartbeat(const Command& command) {
  Client* client = clients.find_mounted(command.client);
  if (client == nullptr) return refuse(command, Code::kClientNotFound);
  if (command.sequence < client->sequence) return refuse(command, Code::kStaleCommand);
  client->sequence = command.sequence;
  if (command.newest_version > Version(epoch, sequence)) {
    ++totals.forged_versions;
    depart(*client, KeyEventKind::kOwnerDistrusted);
    return refuse(command, Code::kClientNotFound);
  }
  alive(*client);
  for (std::size_t i = 0; i < command.segments.size(); ++i) {
    const MountedSegment& wanted = command.segments[i];
    effects->items[i] = Effect{};
    Segment* segment = segments.find(wanted.address.id);
    if (segment == nullptr || segment->client != client->id ||
        segment->address.incarnation != wanted.address.incarnation) {
      effects->items[i].code = Code::kSegmentNotFound;
    } else {
      prepare(*segment, wanted.prepared);
    }
  }
}

// Its segments and open writes go, what it has published elsewhere stays.
void Core::State::depart(Client& client, KeyEventKind event) {
  release_grants_of(client);
  while (!client.segments.empty())
    drop_segment(client, *segments.find(client.segments.back()), event);
  client.mounted = false;
  client.seen = now;
  clients.departed.splice(clients.departed.end(), clients.mounted, client.position);
  totals.clients = clients.mounted.size();
  while (!clients.departed.empty()) {
    const Client* oldest = clients.departed.front();
    if (clients.departed.size() <= kMaxDeparted && oldest->seen + kRememberNs > now) break;
    clients.departed.pop_front();
    clients.all.erase(static_cast<std::uint64_t>(oldest->id));
  }
}

}  // namespace mooncake::store::master
