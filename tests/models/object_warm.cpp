// Warm restart of the object model: the Master rebuilds its directory from what the owners hold.
// Owners are told numbered publish marks and frees as a stream, some time after the Master decided
// and answered; what they have not confirmed is lost with the Master, unless its journal keeps it.
#include "object_model.h"

namespace mooncake::models {
namespace {

constexpr uint8_t bit(int index) { return static_cast<uint8_t>(1 << index); }
constexpr uint8_t without(uint8_t set, int index) {
  return static_cast<uint8_t>(set & ~bit(index));
}

}  // namespace

// Written before the publish is answered.
void ObjectModel::note_published(State& next, int index) const {
  if (scenario_.restart == Restart::kOutbox && !is(ObjectMutant::kPublishNotJournaled)) {
    next.journal_published |= bit(index);
  }
}

// Written before the removal, the upsert or the next grant is answered.
void ObjectModel::note_gone(State& next, int index, bool evicted) const {
  if (!warm()) return;
  if (evicted && scenario_.restart == Restart::kGuess) return;
  if (evicted && is(ObjectMutant::kEvictionNotJournaled)) return;
  next.journal_gone |= bit(index);
}

// The stream of marks and frees arrives; the owner's confirmation takes the entry off the journal.
void ObjectModel::stream_steps(const State& state, Steps<State>& out) const {
  if (state.master.rebuilding != 0) return;
  for (int extent = 0; extent < extents(); ++extent) {
    const int index = candidate(state, extent);
    const int owner = owner_of(extent);
    const bool reachable = state.master.incarnation[owner] == state.owners[owner].incarnation &&
                           state.owners[owner].epoch == state.master.epoch;
    if (index < 0 || !reachable) continue;
    const Record& record = state.master.record[index];
    const bool current =
        record.extent == extent && record.version == state.extents[extent].word >> 1;
    State next = state;
    if (current && record.state == RecordState::kPublished) {
      if (state.extents[extent].marked != 0) continue;
      next.extents[extent].marked = 1;
      next.journal_published = without(next.journal_published, index);
      out.fair({"owner: marks op % in extent % as published", index, extent}, next);
    } else if (!current || record.state != RecordState::kGranted) {
      next.extents[extent].record = 0;
      next.extents[extent].marked = 0;
      next.journal_published = without(next.journal_published, index);
      next.journal_gone = without(next.journal_gone, index);
      out.fair({"owner: frees op % in extent %", index, extent}, next);
    }
  }
}

// The operation whose complete record lies in the extent, or -1.
int ObjectModel::candidate(const State& state, int extent) const {
  const Extent& each = state.extents[extent];
  return (each.word & 1) == 0 ? each.record - 1 : -1;
}

void ObjectModel::restart_warm(State& next) const {
  next.master.rebuilding = 1;
  const uint8_t must_have = next.must_have;
  for (int key = 0; key < kKeys; ++key)
    forget_must(next, key);
  next.must_have = must_have;  // a get that begins after the rebuilding has to find it
}

// Nothing is decided before all owners have announced what they hold.
void ObjectModel::announce(State& next, const Message& request) const {
  next.master.incarnation[request.op] = request.incarnation;
  for (int extent = 0; extent < extents(); ++extent) {
    if (next.master.incarnation[owner_of(extent)] == 0) return;
  }
  adopt(next);
}

void ObjectModel::adopt(State& next) const {
  next.master.rebuilding = 0;
  next.master.free_extents = static_cast<uint8_t>((1 << extents()) - 1);
  for (int key = 0; key < kKeys; ++key) {
    const int extent = choose(next, key);
    if (extent < 0) continue;
    const int index = candidate(next, extent);
    next.master.record[index] = {RecordState::kPublished, static_cast<uint8_t>(extent),
                                 static_cast<uint8_t>(next.extents[extent].word >> 1),
                                 next.master.incarnation[owner_of(extent)]};
    next.master.free_extents = without(next.master.free_extents, extent);
    next.master.directory[key] = static_cast<uint8_t>(index + 1);
    if ((next.published & bit(index)) == 0) record_publish(next, index);
  }
}

// The extent whose record becomes the key's object, or -1. Versions are in the order of grants, but
// which upsert won was decided by the order of publishes: they may decide among guesses only. Of
// what is marked and not gone there is one at most, and so any may be taken.
int ObjectModel::choose(const State& state, int key) const {
  int best = -1;
  bool best_marked = false;
  const bool by_version =
      scenario_.restart == Restart::kGuess || is(ObjectMutant::kHighestVersionAdopted);
  for (int extent = 0; extent < extents(); ++extent) {
    const int index = candidate(state, extent);
    if (index < 0 || op(index).key != key || (state.journal_gone & bit(index)) != 0) continue;
    const bool marked =
        state.extents[extent].marked != 0 || (state.journal_published & bit(index)) != 0;
    if (!marked && scenario_.restart == Restart::kOutbox) continue;
    const bool higher =
        best < 0 || (by_version && state.extents[extent].word > state.extents[best].word);
    if (best >= 0 && best_marked != marked ? marked : higher) {
      best = extent;
      best_marked = marked;
    }
  }
  return best;
}

}  // namespace mooncake::models
