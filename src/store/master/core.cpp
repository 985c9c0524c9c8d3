#include "store/master/core.h"

#include <algorithm>
#include <cassert>

#include "store/master/core_state.h"

namespace mooncake::store::master {

namespace {

// Keys of one batch that are fetched ahead together: enough to hide memory latency, few enough that
// the first is still in the cache when it is answered.
constexpr std::size_t kAhead = 32;
// With fewer epochs in hand the server should store a higher limit.
constexpr std::uint32_t kEpochsInHand = 512;

std::uint64_t count(base::Duration duration) {
  return static_cast<std::uint64_t>(std::max<base::Duration::rep>(duration.count(), 0));
}

}  // namespace

Core::State::State(const CoreOptions& options_)
    : options(options_),
      lease_ns(count(options_.lease_ttl)),
      epoch(options_.epoch),
      epoch_limit(std::max(options_.epoch_limit, options_.epoch)),
      directory(options_.hash_seed),
      placer(options_.hash_seed, options_.strategy),
      ordinary(options_.eviction_policy, directory, lease_ns),
      soft_pinned(options_.eviction_policy, directory, lease_ns),
      events(options_.remembered_events) {}

void Core::State::apply(const Command& command) {
  ordinary.held.advance(now);
  soft_pinned.held.advance(now);
  switch (command.kind) {
    case CommandKind::kMount:
      return mount(command);
    case CommandKind::kUnmount:
      return unmount(command);
    case CommandKind::kHeartbeat:
      return heartbeat(command);
    case CommandKind::kGrant:
      return numbered(command, &State::grant);
    case CommandKind::kPublish:
      return numbered(command, &State::publish);
    case CommandKind::kRevoke:
      return numbered(command, &State::revoke);
    case CommandKind::kRemove:
      return numbered(command, &State::remove);
    case CommandKind::kSweep:
      return sweep(command);
    case CommandKind::kLocate:
    case CommandKind::kExist:
      return read(command);
    case CommandKind::kDisown:
      return disown(command);
    case CommandKind::kTick:
      return tick(command);
  }
}

void Core::State::refuse(const Command& command, Code code) {
  effects->code = code;
  const std::size_t items = std::max(command.items.size(), command.segments.size());
  for (Effect& effect : effects->items.first(items)) {
    effect = Effect{};
    effect.code = code;
  }
}

// Fetches a part of a batch ahead, in passes, so that its cache misses overlap.
static void prefetch(const Directory& directory, CommandKind kind,
                     std::span<const CommandItem> items, base::Hash128* hashes) {
  const bool whole = kind != CommandKind::kExist;
  for (std::size_t i = 0; i < items.size(); ++i) {
    hashes[i] = directory.hash(items[i].key);
    directory.prefetch_group(hashes[i]);
  }
  for (std::size_t i = 0; i < items.size(); ++i)
    directory.prefetch_entry(hashes[i], whole);
  for (std::size_t i = 0; i < items.size(); ++i)
    directory.prefetch_text(hashes[i]);
}

void Core::State::numbered(const Command& command, Answer answer) {
  Client* client = clients.find_mounted(command.client);
  if (client == nullptr) return refuse(command, Code::kClientNotFound);
  if (command.sequence + command.items.size() < command.sequence) {
    return refuse(command, Code::kInvalidArgument);
  }
  forget_below(*client, command.oldest_open);
  base::Hash128 hashes[kAhead];
  for (std::size_t begin = 0; begin < command.items.size(); begin += kAhead) {
    const auto part = command.items.subspan(begin, std::min(kAhead, command.items.size() - begin));
    prefetch(directory, command.kind, part, hashes);
    for (std::size_t i = 0; command.kind == CommandKind::kPublish && i < part.size(); ++i)
      events.prefetch(hashes[i]);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const Item item{*client, command, part[i], command.sequence + begin + i, hashes[i]};
      answer_numbered(item, answer, effects->items[begin + i]);
    }
  }
}

void Core::State::answer_numbered(const Item& item, Answer answer, Effect& effect) {
  effect = Effect{};
  Outcomes& outcomes = item.client.outcomes;
  Outcomes::Outcome* outcome = outcomes.at(item.number);
  if (outcome == nullptr) {
    effect.code = outcomes.is_past(item.number) ? Code::kStaleCommand : Code::kBusy;
    return;
  }
  const auto check = static_cast<std::uint32_t>(item.hash.low >> 32);
  if (outcome->state != Outcomes::State::kUnknown) {
    const bool same = outcome->kind == item.command.kind && outcome->key_check == check;
    if (same) effect = outcome->effect();
    if (!same) effect.code = Code::kInvalidArgument;
    return;
  }
  const bool may_be_empty = item.command.kind == CommandKind::kSweep;
  if ((item.item.key.empty() && !may_be_empty) || item.item.key.size() > kMaxKeyLength) {
    effect.code = Code::kInvalidArgument;
  } else {
    (this->*answer)(item, effect);
  }
  if (effect.code == Code::kBusy || effect.code == Code::kSpaceInPreparation) return;
  outcome->set(effect);
  outcome->key_check = check;
  outcome->kind = item.command.kind;
  outcome->state = Outcomes::State::kAnswered;
  if (outcome->kind == CommandKind::kSweep) outcome->entry = effect.cursor;
  if (outcome->kind == CommandKind::kGrant && effect.code == Code::kOk) {
    outcome->entry = open.last;
    outcome->state = Outcomes::State::kOpen;
  }
}

// Grants below that are still open have been given up without a revoke.
void Core::State::forget_below(Client& client, std::uint64_t oldest_open) {
  client.outcomes.forget_below(oldest_open, [&](const Outcomes::Outcome& outcome) {
    release_grant(outcome.entry, KeyEventKind::kWriteAbandoned);
  });
}

void Core::State::read(const Command& command) {
  base::Hash128 hashes[kAhead];
  for (std::size_t begin = 0; begin < command.items.size(); begin += kAhead) {
    const auto part = command.items.subspan(begin, std::min(kAhead, command.items.size() - begin));
    prefetch(directory, command.kind, part, hashes);
    for (std::size_t i = 0; i < part.size(); ++i) {
      Effect& effect = effects->items[begin + i];
      effect = Effect{};
      const std::uint32_t number = directory.find(hashes[i], part[i].key);
      if (number == kNoEntry || directory[number].state != PutState::kPublished) {
        effect.code = Code::kObjectNotFound;
      } else if (command.kind == CommandKind::kLocate) {
        locate(number, effect);
      } else {
        exist(number, effect);
      }
    }
  }
}

static Decision::Kind kind_of(KeyEventKind event) {
  using enum KeyEventKind;
  switch (event) {
    case kPublished:
      return Decision::Kind::kPublished;
    case kEvictedForRoom:
    case kEvictedAhead:
      return Decision::Kind::kEvicted;
    case kRemoved:
    case kRemovedByPattern:
    case kRemovedWithAll:
      return Decision::Kind::kRemoved;
    case kReplaced:
      return Decision::Kind::kReplaced;
    case kWriteTimedOut:
    case kWriteAbandoned:
    case kWriterLeft:
      return Decision::Kind::kGrantExpired;
    case kWriteRevoked:
    case kWriteOvertaken:
      return Decision::Kind::kRevoked;
    default:
      return Decision::Kind::kLost;
  }
}

// Before the entry changes: of what it was.
void Core::State::note(KeyEventKind event, const Entry& entry) {
  EventRing::Event remembered;
  remembered.hash = {entry.hash_high, entry.hash_low};
  remembered.version = entry.version;
  remembered.size = entry.size;
  remembered.at = now;
  remembered.writer = entry.writer;
  remembered.segment = entry.replicas == 0 ? 0 : entry.placements[0].segment;
  remembered.kind = event;
  remembered.soft_pinned = entry.state == PutState::kPublished && (entry.flags & kSoftPinned) != 0;
  events.add(remembered);
  if (effects->decisions == nullptr) return;
  effects->decisions->push_back(
      {kind_of(event), event, entry.version, entry.size, std::string(directory.key(entry))});
}

bool Core::State::next_version(Version& version) {
  if (sequence == Version::kMaxSequence) {
    if (epoch >= epoch_limit) return false;
    epoch = static_cast<Epoch>(static_cast<std::uint32_t>(epoch) + 1);
    sequence = 0;
  }
  version = Version(epoch, ++sequence);
  return true;
}

std::uint64_t Core::State::bytes_of(const Entry& entry) const {
  std::uint64_t replicas = 0;
  for (std::size_t i = 0; i < entry.replicas; ++i)
    replicas += entry.extents[i] != kNoExtent;
  return replicas * units_for(entry.size) * memory::kExtentUnit;
}

// Leaves a gap, which close_gaps() closes or an open grant keeps.
void Core::State::free_replica(Entry& entry, std::size_t replica) {
  if (entry.extents[replica] == kNoExtent) return;
  Segment* segment = segments.find(entry.placements[replica].segment);
  assert(segment != nullptr);
  segment->allocator.free(entry.extents[replica]);
  entry.extents[replica] = kNoExtent;
  totals.allocated_bytes -= units_for(entry.size) * memory::kExtentUnit;
}

void Core::State::close_gaps(Entry& entry) {
  std::uint8_t kept = 0;
  for (std::size_t i = 0; i < entry.replicas; ++i) {
    if (entry.extents[i] == kNoExtent) continue;
    entry.extents[kept] = entry.extents[i];
    entry.placements[kept++] = entry.placements[i];
  }
  entry.replicas = kept;
}

void Core::State::erase(std::uint32_t number) {
  Entry& entry = directory[number];
  for (std::size_t i = 0; i < entry.replicas; ++i)
    free_replica(entry, i);
  directory.erase(number);
}

void Core::State::link_open(std::uint32_t number) {
  directory[number].queue = {kNoEntry, open.last};
  (open.last == kNoEntry ? open.first : directory[open.last].queue.next) = number;
  open.last = number;
  ++totals.open_grants;
}

void Core::State::unlink_open(std::uint32_t number) {
  const QueueLinks links = directory[number].queue;
  (links.previous == kNoEntry ? open.first : directory[links.previous].queue.next) = links.next;
  (links.next == kNoEntry ? open.last : directory[links.next].queue.previous) = links.previous;
  directory[number].queue = {};
  --totals.open_grants;
  // It is the writer's to say how the grant ended, but not to end it again.
  if (Client* writer = clients.find(directory[number].writer)) {
    writer->outcomes.close(writer->outcomes.whole(directory[number].open.number));
  }
}

Core::Core(const CoreOptions& options) : state_(std::make_unique<State>(options)) {}
Core::~Core() = default;

void Core::apply(const Command& command, TimePoint now, Effects& effects) {
  assert(effects.items.size() >= command.items.size());
  assert(effects.items.size() >= command.segments.size());
  effects.code = Code::kOk;
  effects.shortage.reset();
  effects.more = false;
  state_->now = std::max(state_->now, count(now.time_since_epoch()));
  state_->effects = &effects;
  state_->apply(command);
  state_->effects = nullptr;
}

Epoch Core::epoch() const { return state_->epoch; }

void Core::extend_epochs(Epoch limit) {
  state_->epoch_limit = std::max(state_->epoch_limit, limit);
}

bool Core::wants_epochs() const { return state_->epoch_limit < wanted_limit(); }

Epoch Core::wanted_limit() const {
  const std::uint64_t wanted =
      std::max<std::uint64_t>(static_cast<std::uint32_t>(state_->epoch), state_->epoch_wanted) +
      kEpochsInHand;
  return static_cast<Epoch>(std::min<std::uint64_t>(wanted, 0xFFFFFFFF));
}

const Totals& Core::totals() const { return state_->totals; }

const SegmentAddress* Core::segment(std::uint32_t handle) const {
  const Segment* segment = std::as_const(state_->segments).find(handle);
  return segment == nullptr ? nullptr : &segment->address;
}

const SegmentAddress* Core::segment_named(std::string_view name) const {
  const Segment* segment = state_->segments.named(name);
  return segment == nullptr ? nullptr : &segment->address;
}

std::vector<SegmentUse> Core::segments() const {
  std::vector<SegmentUse> uses;
  for (const Segment* segment : state_->segments.all()) {
    uses.push_back({segment->address, segment->client,
                    segment->allocator.prepared() * memory::kExtentUnit,
                    segment->allocator.allocated() * memory::kExtentUnit, segment->leaving()});
  }
  return uses;
}

Effect Core::peek(std::string_view key) const {
  const Directory& directory = state_->directory;
  const std::uint32_t number = directory.find(directory.hash(key), key);
  Effect effect;
  if (number == kNoEntry || directory[number].state != PutState::kPublished) {
    effect.code = Code::kObjectNotFound;
  } else {
    describe(directory[number], effect);
  }
  return effect;
}

std::uint32_t Core::visit_keys(std::uint32_t cursor, std::size_t budget,
                               const std::function<void(std::string_view key)>& visit) const {
  const Directory& directory = state_->directory;
  for (; budget > 0 && cursor < directory.end(); ++cursor, --budget) {
    const Entry& entry = directory[cursor];
    if (entry.state == PutState::kPublished) visit(directory.key(entry));
  }
  return cursor < directory.end() ? cursor : kSweepEnd;
}

KeyReport Core::why(std::string_view key, std::size_t most_events, TimePoint now) const {
  return state_->why(key, most_events, std::max(state_->now, count(now.time_since_epoch())));
}

Result<void> Core::verify() const { return state_->verify(); }

Core::Memory Core::memory() const {
  const Directory::Memory directory = state_->directory.memory_bytes();
  Memory memory{directory.entries + directory.table, directory.keys};
  memory.objects += state_->ordinary.policy->memory_bytes();
  memory.objects += state_->soft_pinned.policy->memory_bytes();
  for (const Segment* segment : state_->segments.all()) {
    memory.objects += segment->allocator.memory_bytes();
  }
  memory.events = state_->events.memory_bytes();
  return memory;
}

}  // namespace mooncake::store::master
