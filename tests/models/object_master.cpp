// The Master's part of the object model: one request is one step, as its core is one executor.
#include "object_model.h"

namespace mooncake::models {
namespace {

constexpr uint8_t bit(int index) { return static_cast<uint8_t>(1 << index); }

// Version = (epoch, sequence), ordered.
constexpr uint8_t version_of(uint8_t epoch, uint8_t sequence) {
  return static_cast<uint8_t>(epoch << 3 | sequence);
}

}  // namespace

// A repeated request gets the same grant; a new one may get any free extent.
void ObjectModel::grant_steps(const State& state, const Message& request, Steps<State>& out) const {
  const Record& record = state.master.record[request.op];
  const int current = state.master.directory[op(request.op).key] - 1;
  State next = state;
  if (record.state == RecordState::kGranted) {
    Message grant = request;
    grant.extent = record.extent;
    grant.version = record.version;
    grant.incarnation = record.incarnation;
    answer(next, grant, Code::kOk);
    tidy(next);
    return out.fair({"Master: the same grant for op %, extent %", request.op, record.extent}, next);
  }
  Code refusal = Code::kNoSpace;
  if (record.state != RecordState::kNone) refusal = Code::kRefused;
  if (op(request.op).kind == OpKind::kPut && current >= 0) refusal = Code::kExists;
  if (refusal == Code::kNoSpace && is(ObjectMutant::kUpsertInPlace) && current >= 0) {
    give(next, request, state.master.record[current].extent);
    tidy(next);
    return out.fair({"Master: grants op % the extent in use, %", request.op,
                     state.master.record[current].extent},
                    next);
  }
  if (refusal != Code::kNoSpace || state.master.free_extents == 0) {
    answer(next, request, refusal);
    tidy(next);
    return out.fair({"Master: no grant for op %, code %", request.op, static_cast<int>(refusal)},
                    next);
  }
  for (int extent = 0; extent < extents(); ++extent) {
    if ((state.master.free_extents & bit(extent)) == 0) continue;
    next = state;
    next.master.free_extents &= static_cast<uint8_t>(~bit(extent));
    give(next, request, extent);
    tidy(next);
    out.fair({"Master: grants op % extent %", request.op, extent}, next);
  }
}

void ObjectModel::give(State& next, const Message& request, int extent) const {
  Message grant = request;
  grant.extent = static_cast<uint8_t>(extent);
  grant.version = version_of(next.master.epoch, ++next.master.sequence);
  grant.incarnation = next.master.incarnation[owner_of(extent)];
  next.master.record[request.op] = {RecordState::kGranted, grant.extent, grant.version,
                                    grant.incarnation};
  answer(next, grant, Code::kOk);
}

void ObjectModel::publish(State& next, const Message& request) const {
  Record& record = next.master.record[request.op];
  const bool same = record.version == request.version;
  const bool done = record.state == RecordState::kPublished || record.state == RecordState::kGone;
  if (same && done && !is(ObjectMutant::kPublishAppliesTwice)) {
    return answer(next, request, Code::kOk);
  }
  const bool valid = same && (record.state == RecordState::kGranted || done) &&
                     request.incarnation == next.master.incarnation[owner_of(request.extent)];
  if (!valid && !is(ObjectMutant::kPublishUnchecked)) {
    return answer(next, request, Code::kRefused);
  }
  if (!valid) {
    record = {RecordState::kGranted, request.extent, request.version, request.incarnation};
  }
  const Op& call = op(request.op);
  if (call.kind == OpKind::kPut && next.master.directory[call.key] != 0) {
    free_extent(next, record.extent);
    record.state = RecordState::kEnded;
    return answer(next, request, Code::kExists);
  }
  apply_publish(next, request.op);
  answer(next, request, Code::kOk);
}

// The switch: whoever asks from here on is sent to the new version.
void ObjectModel::apply_publish(State& next, int index) const {
  const int key = op(index).key;
  const int old = next.master.directory[key] - 1;
  Record& record = next.master.record[index];
  if (old >= 0) {
    Record& superseded = next.master.record[old];
    superseded.state = RecordState::kGone;
    const bool in_place = is(ObjectMutant::kUpsertInPlace) && superseded.extent == record.extent;
    if (!in_place && !is(ObjectMutant::kSupersededNotFreed)) free_extent(next, superseded.extent);
    if (!is(ObjectMutant::kHighestVersionAdopted)) note_gone(next, old, false);
    for (Client& client : next.clients) {
      if (client.phase < Phase::kLocate || client.phase > Phase::kRead) continue;
      if (op(client.op).key == key && client.must_hit > 0) --client.must_hit;
    }
  }
  record.state = RecordState::kPublished;
  next.master.directory[key] = static_cast<uint8_t>(index + 1);
  note_published(next, index);
  record_publish(next, index);
}

// For the checks: once this publish is answered or seen, what was published before is gone for
// good.
void ObjectModel::record_publish(State& next, int index) const {
  const int key = op(index).key;
  const Record& record = next.master.record[index];
  for (int other = 0; other < ops(); ++other) {
    if (op(other).key != key || other == index) continue;
    next.victims[index] |= static_cast<uint8_t>(next.published & bit(other));
  }
  next.published |= bit(index);
  // The owner died after it had answered: this version is lost, and it is the current one.
  if (!holds(next, record)) forget_must(next, key);
}

void ObjectModel::remove(State& next, const Message& request) const {
  Record& record = next.master.record[request.op];
  const bool done = record.state == RecordState::kEnded;
  if (done && !is(ObjectMutant::kRemoveAppliesTwice)) return answer(next, request, Code::kOk);
  record.state = RecordState::kEnded;
  const int key = op(request.op).key;
  for (int other = 0; other < ops(); ++other) {
    if (op(other).key == key)
      next.victims[request.op] |= static_cast<uint8_t>(next.published & bit(other));
  }
  if (is(ObjectMutant::kRemoveAnsweredFirst)) {
    next.master.late_removes |= bit(request.op);
  } else {
    apply_remove(next, request.op);
  }
  answer(next, request, Code::kOk);
}

void ObjectModel::apply_remove(State& next, int index) const {
  const int key = op(index).key;
  if (next.master.directory[key] == 0) return;
  if ((next.removes_applied & bit(index)) != 0) next.alarm = ObjectAlarm::kRemoveAppliedTwice;
  next.removes_applied |= bit(index);
  drop_key(next, key, false);
}

void ObjectModel::locate(State& next, const Message& request) const {
  const int index = next.master.directory[op(request.op).key] - 1;
  if (index < 0) {
    // "Rebuilding": the record may lie with an owner that has not announced it yet.
    if (next.master.rebuilding != 0) next.clients[op(request.op).client].must_hit = 0;
    return answer(next, request, Code::kNotFound);
  }
  Message found = request;
  found.extent = next.master.record[index].extent;
  found.version = next.master.record[index].version;
  found.incarnation = next.master.record[index].incarnation;
  answer(next, found, Code::kOk);
}

// A mount of another incarnation than the one that is there claims the name of another engine: the
// Master asks who answers under it. Only the newcomer's own answer, stage 1, which says who had the
// name when it was asked, proves that this one is dead; silence and other answers prove nothing.
Label ObjectModel::mount(State& next, Message request) const {
  const int owner = request.op;
  if (request.epoch < next.master.epoch && !is(ObjectMutant::kMasterAcceptsOldEpochs)) {
    return {"Master: refuses owner %, epoch is %", owner, next.master.epoch};
  }
  const uint8_t& mounted = next.master.incarnation[owner];
  const bool same = request.version == mounted || is(ObjectMutant::kDisownsWhoeverIsThere);
  if (request.stage == 1 && same) disown(next, owner);
  if (mounted != 0 && mounted != request.incarnation) {
    if (is(ObjectMutant::kNewcomerBelieved)) {
      disown(next, owner);
    } else if (next.owners[owner].incarnation != request.incarnation) {
      return {"Master: owner % does not answer as incarnation %", owner, request.incarnation};
    } else {
      request.stage = 1;
      request.version = mounted;
      send(next, request);
      return {"owner %: answers as incarnation %", owner, request.incarnation};
    }
  }
  if (mounted == 0) take_in(next, request);
  return {"Master: mount of owner %", owner};
}

void ObjectModel::take_in(State& next, const Message& request) const {
  if (next.master.rebuilding != 0) return announce(next, request);
  next.master.incarnation[request.op] = request.incarnation;
  for (int extent = 0; extent < extents(); ++extent) {
    if (owner_of(extent) == request.op) next.master.free_extents |= bit(extent);
  }
}

// All that was promised about its memory is void.
void ObjectModel::disown(State& next, int owner) const {
  next.master.incarnation[owner] = 0;
  for (int key = 0; key < kKeys; ++key) {
    const int index = next.master.directory[key] - 1;
    if (index < 0 || owner_of(next.master.record[index].extent) != owner) continue;
    next.master.record[index].state = RecordState::kGone;
    next.master.directory[key] = 0;
  }
  for (int index = 0; index < ops(); ++index) {
    Record& record = next.master.record[index];
    if (record.state == RecordState::kGranted && owner_of(record.extent) == owner) {
      record.state = RecordState::kEnded;
    }
  }
  for (int extent = 0; extent < extents(); ++extent) {
    if (owner_of(extent) == owner) next.master.free_extents &= static_cast<uint8_t>(~bit(extent));
  }
}

// What the Master does of itself: it takes back what a finished or dead writer left behind.
void ObjectModel::master_steps(const State& state, Steps<State>& out) const {
  for (int index = 0; index < ops(); ++index) {
    if ((state.master.late_removes & bit(index)) != 0) {
      State next = state;
      next.master.late_removes &= static_cast<uint8_t>(~bit(index));
      apply_remove(next, index);
      out.fair({"Master: applies the remove of op %, answered before", index}, next);
    }
    if (state.master.record[index].state != RecordState::kGranted) continue;
    const bool over = state.outcome[index] != Outcome::kOpen ||
                      state.clients[op(index).client].phase == Phase::kDead;
    State next = state;
    next.master.record[index].state = RecordState::kEnded;
    free_extent(next, state.master.record[index].extent);
    if (over) {
      out.fair({"Master: revokes what op % left behind", index}, next);
    } else if (may(state, kEarlyRevoke)) {
      --next.faults_left;
      out.fault({"Master: gives up on op %", index}, next);
    }
  }
}

void ObjectModel::drop_key(State& next, int key, bool evicted) const {
  note_gone(next, next.master.directory[key] - 1, evicted);
  Record& record = next.master.record[next.master.directory[key] - 1];
  free_extent(next, record.extent);
  record.state = RecordState::kGone;
  next.master.directory[key] = 0;
}

// May be granted again at once: the owner refuses writes of older grants, and reads name a version.
void ObjectModel::free_extent(State& next, int extent) const {
  next.master.free_extents |= bit(extent);
}

void ObjectModel::restart_master(State& next) const {
  const uint8_t epoch = next.master.epoch;
  next.master = Master{};
  next.master.epoch = is(ObjectMutant::kEpochNotRaised) ? epoch : static_cast<uint8_t>(epoch + 1);
  next.removes_applied = 0;
  if (warm()) {
    restart_warm(next);
  } else {
    for (int key = 0; key < kKeys; ++key)
      forget_must(next, key);
  }
  // Owners notice by their heartbeat that this Master does not know them, whatever its epoch.
  for (Owner& owner : next.owners)
    owner.epoch = owner.epoch == 0 ? 0 : 255;
}

// From here on a get of this key may miss, also one that is under way.
void ObjectModel::forget_must(State& next, int key) const {
  next.must_have &= static_cast<uint8_t>(~bit(key));
  for (Client& client : next.clients) {
    if (client.phase != Phase::kLocate && client.phase != Phase::kRead) continue;
    if (op(client.op).key == key) client.must_hit = 0;
  }
}

}  // namespace mooncake::models
