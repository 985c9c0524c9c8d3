#include "memory/extent_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

namespace mooncake::memory {

namespace {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

// Of one extent at once: each end of a part looks at all others.
constexpr std::size_t kMaxTickets = 2048;

constexpr std::uint64_t word_of(Generation generation) {
  return static_cast<std::uint64_t>(generation);
}
constexpr std::uint64_t units_for(std::uint64_t bytes) {
  return (bytes + kExtentUnit - 1) / kExtentUnit;
}

// Disjoint intervals of an extent's bytes that have been written.
class Covered {
 public:
  bool contains(std::uint64_t begin, std::uint64_t end) const {
    const auto it = before(begin);
    return it != parts_.end() && it->second >= end;
  }
  void add(std::uint64_t begin, std::uint64_t end) {
    auto it = before(begin);
    if (it == parts_.end() || it->second < begin) {
      it = parts_.insert_or_assign(begin, end).first;
    }
    it->second = std::max(it->second, end);
    for (auto next = std::next(it); next != parts_.end() && next->first <= it->second;) {
      it->second = std::max(it->second, next->second);
      next = parts_.erase(next);
    }
  }

 private:
  using Parts = std::map<std::uint64_t, std::uint64_t>;  // begin -> end
  Parts::const_iterator before(std::uint64_t begin) const {
    const auto it = parts_.upper_bound(begin);
    return it == parts_.begin() ? parts_.end() : std::prev(it);
  }
  Parts::iterator before(std::uint64_t begin) {
    const auto it = parts_.upper_bound(begin);
    return it == parts_.begin() ? parts_.end() : std::prev(it);
  }
  Parts parts_;
};

}  // namespace

// One extent that is there or being written.
struct ExtentTable::Live {
  Extent extent;
  Covered covered;  // only while it is being written
  std::vector<std::uint64_t> tickets;

  std::uint64_t size() const { return extent.record.size; }
  bool is_complete() const { return !is_writing(extent.generation); }
  bool has(std::uint64_t begin, std::uint64_t end) const {
    return is_complete() || covered.contains(begin, end);
  }
};

struct ExtentTable::State {
  struct Part {
    std::uint64_t extent = 0;
    Version version;
    std::uint64_t begin = 0, end = 0;  // within the extent
    bool fenced = false;
    std::shared_ptr<Copier> copier;  // until it is stopped
  };
  // Bytes [begin, end) of the segment that a stopped copier may still write.
  struct Leaving {
    std::uint64_t begin = 0, end = 0;
    std::shared_ptr<Copier> copier;
  };

  std::uint64_t size = 0;
  os::OwnedMapping words_memory;
  std::span<Word> words;
  Version floor;
  std::map<std::uint64_t, Live> live;  // by first byte; they don't overlap
  std::unordered_map<std::uint64_t, Part> tickets;
  std::uint64_t next_ticket = 1;
  std::shared_ptr<PinnedRanges> pins;
  std::vector<Leaving> leaving;
  std::size_t leaving_swept = 0;  // how many were left by the last sweep

  Word& word(std::uint64_t extent) { return words[extent / kExtentUnit]; }

  // Whether it was out at once.
  bool stop(Part& part) {
    const auto copier = std::exchange(part.copier, nullptr);
    if (!copier) return true;
    copier->stop();
    if (copier->is_out()) return true;
    sweep_leaving();
    leaving.push_back({part.extent + part.begin, part.extent + part.end, copier});
    return false;
  }
  // Whenever there are twice as many as the last time: asking a copier is dear.
  void sweep_leaving() {
    if (leaving.size() < 2 * leaving_swept + 16) return;
    std::erase_if(leaving, [](const Leaving& each) { return each.copier->is_out(); });
    leaving_swept = leaving.size();
  }
  bool is_occupied(std::uint64_t begin, std::uint64_t end) {
    bool occupied = false;
    std::erase_if(leaving, [&](const Leaving& each) {
      if (occupied || each.begin >= end || begin >= each.end) return false;
      occupied = !each.copier->is_out();
      return !occupied;
    });
    return occupied;
  }
  // Makes the extent readable if all of its bytes are there and nobody can write to them any more.
  // False when one that was stopped still can.
  bool complete_if_whole(std::uint64_t extent, Live& entry) {
    if (entry.is_complete() || !entry.covered.contains(0, entry.size())) return true;
    fence_tickets(entry);
    if (is_occupied(extent, extent + entry.size())) return false;
    entry.covered = {};
    entry.extent.generation = complete(version_of(entry.extent.generation));
    word(extent).store(word_of(entry.extent.generation), std::memory_order_release);
    return true;
  }
  void fence(Part& part) {
    part.fenced = true;
    stop(part);
  }
  void fence_tickets(const Live& entry) {
    for (const std::uint64_t id : entry.tickets)
      fence(tickets.at(id));
  }
  // The extent is no more. Its own word says so; the words of what replaces it are the caller's.
  auto drop(std::map<std::uint64_t, Live>::iterator it) {
    fence_tickets(it->second);
    word(it->first).store(word_of(writing(version_of(it->second.extent.generation))),
                          std::memory_order_release);
    return live.erase(it);
  }
  // The extent that the ticket's part belongs to, unless it has been replaced.
  Live* extent_of(const Part& part) {
    const auto it = live.find(part.extent);
    if (it == live.end() || version_of(it->second.extent.generation) != part.version)
      return nullptr;
    return &it->second;
  }
};

ExtentTable::ExtentTable() : state_(std::make_unique<State>()) {}
ExtentTable::~ExtentTable() = default;

Result<std::unique_ptr<ExtentTable>> ExtentTable::create(std::uint64_t size,
                                                         std::shared_ptr<PinnedRanges> pins) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 44;  // unit numbers are 32 bits
  if (size == 0 || size > kLargest) {
    return fail(Code::kInvalidArgument,
                fmt::format("segment size {} is not in 1..{}", size, kLargest));
  }
  auto table = std::unique_ptr<ExtentTable>(new ExtentTable);
  State& state = *table->state_;
  state.size = size;
  state.pins = pins ? std::move(pins) : PinnedRanges::create();
  MC_TRY(state.words_memory,
         os::OwnedMapping::create("mooncake-words", units_for(size) * sizeof(Word),
                                  os::OwnedMapping::PeersMay::kOnlyRead));
  // Fresh memory is zero, which is the word of a unit that was never written.
  state.words = {reinterpret_cast<Word*>(state.words_memory.data()), units_for(size)};
  return table;
}

Result<void> ExtentTable::check(std::uint64_t extent, std::uint64_t offset, std::uint64_t length,
                                const ExtentRecord& record, std::string_view key) const {
  const Version version = Version::from_value(record.version);
  if (!version.valid() || version.value() != record.version || record.key_length != key.size() ||
      key.empty() || key.size() > kMaxKeyLength ||
      (record.kind != RecordKind::kPut && record.kind != RecordKind::kUpsert)) {
    return fail(Code::kInvalidArgument, "the record of a write is malformed");
  }
  if (extent % kExtentUnit != 0 || extent >= state_->size || record.size == 0 ||
      record.size > state_->size - extent) {
    return fail(Code::kInvalidArgument,
                fmt::format("extent at {} of {} bytes is none of a segment of {} bytes", extent,
                            record.size, state_->size));
  }
  if (length == 0 || offset < extent || offset - extent > record.size ||
      length > record.size - (offset - extent)) {
    return fail(Code::kInvalidArgument,
                fmt::format("{} bytes at {} are not in the extent at {}", length, offset, extent));
  }
  if (version <= state_->floor) return fail(Code::kGrantRefused, "granted before the unmount");
  return {};
}

// The extent, if it is of this very grant.
ExtentTable::Live* ExtentTable::joinable(std::uint64_t extent, const ExtentRecord& record,
                                         std::string_view key) {
  const auto it = state_->live.find(extent);
  if (it == state_->live.end()) return nullptr;
  const Extent& there = it->second.extent;
  const bool same = std::memcmp(&there.record, &record, sizeof(record)) == 0 && there.key == key;
  return same ? &it->second : nullptr;
}

// Ends what overlaps the extent, and puts this version in its place.
ExtentTable::Live& ExtentTable::take_over(std::uint64_t extent, const ExtentRecord& record,
                                          std::string_view key) {
  const Generation generation = writing(Version::from_value(record.version));
  auto it = state_->live.upper_bound(extent);
  if (it != state_->live.begin()) {
    const auto before = std::prev(it);
    if (before->first + before->second.size() > extent) it = before;
  }
  while (it != state_->live.end() && it->first < extent + record.size)
    it = state_->drop(it);

  const auto first = extent / kExtentUnit;
  for (auto unit = first; unit < first + units_for(record.size); ++unit) {
    state_->words[unit].store(word_of(generation), std::memory_order_relaxed);
  }
  // Who copies from a mapping and sees any byte of this write then sees its word, too.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Live& entry = state_->live[extent];
  entry.extent.generation = generation;
  entry.extent.record = record;
  entry.extent.key = key;
  return entry;
}

static tl::unexpected<Error> still_copying() {
  return fail(Code::kBusy, "an earlier writer is still copying there");
}

Result<ExtentTable::BeginOutcome> ExtentTable::begin_write(
    std::uint64_t extent, std::uint64_t offset, std::uint64_t length, const ExtentRecord& record,
    std::string_view key, std::shared_ptr<Copier> copier) {
  MC_CHECK(check(extent, offset, length, record, key));
  const std::uint64_t begin = offset - extent;
  BeginOutcome outcome;
  Live* entry = joinable(extent, record, key);
  if (entry && entry->has(begin, begin + length)) {
    if (!state_->complete_if_whole(extent, *entry)) return still_copying();
    outcome.kind = Begin::kAlreadyComplete;
    return outcome;
  }
  if (entry) {
    outcome.kind = Begin::kJoined;
  } else {
    const auto first = extent / kExtentUnit;
    for (auto unit = first; unit < first + units_for(record.size); ++unit) {
      const auto word = state_->words[unit].load(std::memory_order_relaxed);
      if (version_of(static_cast<Generation>(word)).value() >= record.version) {
        return fail(Code::kGrantRefused, "the extent was granted again since");
      }
    }
    if (state_->pins->overlaps(extent, extent + record.size)) {
      return fail(Code::kBusy, "readers have pinned what lies there");
    }
    entry = &take_over(extent, record, key);
  }
  newest_ = std::max(newest_, Version::from_value(record.version));
  if (state_->is_occupied(extent, extent + record.size)) return still_copying();
  if (entry->tickets.size() >= kMaxTickets) {
    return fail(Code::kBusy, fmt::format("{} writes of one extent are open", kMaxTickets));
  }
  outcome.ticket.id_ = state_->next_ticket++;
  auto& part = state_->tickets[outcome.ticket.id_];
  part.extent = extent;
  part.version = Version::from_value(record.version);
  part.begin = begin;
  part.end = begin + length;
  part.copier = std::move(copier);
  entry->tickets.push_back(outcome.ticket.id_);
  return outcome;
}

bool ExtentTable::may_write(const Ticket& ticket) const {
  const auto it = state_->tickets.find(ticket.id_);
  return it != state_->tickets.end() && !it->second.fenced;
}

Result<void> ExtentTable::commit(Ticket ticket) {
  const auto it = state_->tickets.find(ticket.id_);
  if (it == state_->tickets.end()) return fail(Code::kGrantRefused, "no such write");
  const bool out = state_->stop(it->second);
  const State::Part part = it->second;
  Live* const entry = state_->extent_of(part);
  abandon(ticket);
  if (part.fenced) {
    if (entry && entry->has(part.begin, part.end)) return {};
    return fail(Code::kGrantRefused, "the extent was granted again during the write");
  }
  if (!out) return fail(Code::kGrantRefused, "its writer is still copying");
  entry->covered.add(part.begin, part.end);
  if (!state_->complete_if_whole(part.extent, *entry)) return still_copying();
  if (entry->is_complete()) return {};
  // What is written stays as it is: a second try of these bytes must not go on over them.
  for (const std::uint64_t id : entry->tickets) {
    auto& other = state_->tickets.at(id);
    if (other.begin < part.end && part.begin < other.end) state_->fence(other);
  }
  return {};
}

void ExtentTable::abandon(Ticket ticket) {
  const auto it = state_->tickets.find(ticket.id_);
  if (it == state_->tickets.end()) return;
  state_->stop(it->second);
  if (Live* const entry = state_->extent_of(it->second)) std::erase(entry->tickets, ticket.id_);
  state_->tickets.erase(it);
}

bool ExtentTable::readable(std::uint64_t extent, std::uint64_t offset, std::uint64_t length,
                           Generation promised) const {
  const auto it = state_->live.find(extent);
  if (it == state_->live.end() || !it->second.is_complete()) return false;
  const std::uint64_t size = it->second.size();
  return it->second.extent.generation == promised && offset >= extent && offset - extent <= size &&
         length <= size - (offset - extent);
}

Result<PinnedRanges::Pin> ExtentTable::pin(std::uint64_t extent, Generation promised) {
  if (!readable(extent, extent, 0, promised)) return fail(Code::kGenerationMismatch);
  return state_->pins->add(extent, extent + state_->live.at(extent).size());
}

const ExtentTable::Extent* ExtentTable::find(std::uint64_t offset) const {
  const auto it = state_->live.find(offset);
  return it == state_->live.end() ? nullptr : &it->second.extent;
}

std::size_t ExtentTable::extents() const { return state_->live.size(); }

std::size_t ExtentTable::writes_under_way() const {
  std::size_t count = 0;
  for (const auto& [id, part] : state_->tickets)
    count += !part.fenced;
  return count;
}

void ExtentTable::fence_all(Version floor) {
  for (auto it = state_->live.begin(); it != state_->live.end();)
    it = state_->drop(it);
  state_->floor = std::max(state_->floor, floor);
  newest_ = std::max(newest_, floor);
}

std::span<const std::atomic<std::uint64_t>> ExtentTable::words() const { return state_->words; }
const os::OwnedMapping& ExtentTable::words_memory() const { return state_->words_memory; }

}  // namespace mooncake::memory
