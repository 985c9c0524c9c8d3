// Owners and clients of the object model.
#include "object_model.h"

namespace mooncake::models {
namespace {

constexpr uint8_t bit(int index) { return static_cast<uint8_t>(1 << index); }
constexpr uint8_t kForgotten = 255;  // Owner::epoch: its Master does not know it any more

constexpr MessageType kRequestOf[] = {
    MessageType::kNone,   MessageType::kGrant, MessageType::kData,   MessageType::kPublish,
    MessageType::kLocate, MessageType::kRead,  MessageType::kRemove, MessageType::kNone};

}  // namespace

// Stage 0 admits the write and turns the word odd, 1 and 2 store a cell each, 3 turns it even and
// answers. The word is asked before every store: a newer grant may have been admitted in between.
// A repeated write of one grant joins in; once the version is complete, the rest goes to a sink.
Label ObjectModel::work_on_data(State& next, Message job) const {
  Extent& extent = next.extents[job.extent];
  const uint8_t writing = static_cast<uint8_t>(job.version << 1 | 1);
  const uint8_t complete = static_cast<uint8_t>(job.version << 1);
  const bool same_mount = job.incarnation == next.owners[owner_of(job.extent)].incarnation;
  if (extent.word == complete && same_mount && !is(ObjectMutant::kRepeatedWriteRewrites)) {
    answer(next, job, Code::kOk);
    return {"owner: data of op % is there already", job.op};
  }
  bool admitted = extent.word == writing;
  if (job.stage == 0) {
    // Equal: joins; or, with kRepeatedWriteRewrites, begins again what was complete.
    admitted = same_mount && job.version >= extent.word >> 1;
  } else if (is(ObjectMutant::kOwnerChecksFirstChunkOnly)) {
    admitted = true;
  }
  if (!admitted && !is(ObjectMutant::kOwnerAcceptsOldGrants)) {
    answer(next, job, Code::kRefused);
    return {"owner: refuses data of op %", job.op};
  }
  switch (job.stage++) {
    case 0:
      extent.word = writing;
      if (warm()) extent.record = static_cast<uint8_t>(job.op + 1);
      extent.marked = 0;
      send(next, job);
      return {"owner: admits data of op % to extent %", job.op, job.extent};
    case 1:
    case 2:
      extent.cells[job.stage - 2] = static_cast<uint8_t>(job.op + 1);
      send(next, job);
      return {"owner: op % stores cell %", job.op, job.stage - 2};
    default:
      extent.word = static_cast<uint8_t>(job.version << 1);
      answer(next, job, Code::kOk);
      return {"owner: data of op % is whole in extent %", job.op, job.extent};
  }
}

// Stage 0 checks the generation, 1 and 2 copy a cell each, 3 checks again and answers.
Label ObjectModel::work_on_read(State& next, Message job) const {
  const Extent& extent = next.extents[job.extent];
  const bool checks = !is(ObjectMutant::kNoCheckOfGeneration) &&
                      !(job.stage == 3 && is(ObjectMutant::kNoCheckAfterCopy));
  if (job.stage == 0 && is(ObjectMutant::kReadsAnyGeneration)) job.version = extent.word >> 1;
  const bool matches = job.incarnation == next.owners[owner_of(job.extent)].incarnation &&
                       extent.word == job.version << 1;
  if ((job.stage == 0 || job.stage == 3) && checks && !matches) {
    answer(next, job, Code::kRefused);
    return {"owner: refuses the read of op %", job.op};
  }
  switch (job.stage++) {
    case 0:
      send(next, job);
      return {"owner: begins the read of op %, extent %", job.op, job.extent};
    case 1:
    case 2:
      job.bytes[job.stage - 2] = extent.cells[job.stage - 2];
      send(next, job);
      return {"owner: op % copies cell %", job.op, job.stage - 2};
    default:
      answer(next, job, Code::kOk);
      return {"owner: ends the read of op %", job.op};
  }
}

// An owner that its Master does not know mounts again, and repeats that until it is answered.
void ObjectModel::owner_steps(const State& state, Steps<State>& out) const {
  for (int index = 0; index < kOwners; ++index) {
    const Owner& owner = state.owners[index];
    if (owner.epoch == state.master.epoch && state.master.incarnation[index] == owner.incarnation) {
      continue;
    }
    State next = state;
    if (owner.epoch == kForgotten && !is(ObjectMutant::kRemountKeepsIncarnation)) {
      ++next.owners[index].incarnation;
      // What is written under the old incarnation is fenced before the records are announced.
      for (Message& message : next.network) {
        const bool old = warm() && message.type == MessageType::kData && message.stage > 0;
        if (old && owner_of(message.extent) == index) message = Message{};
      }
    }
    next.owners[index].epoch = state.master.epoch;
    Message mount{};
    mount.type = MessageType::kMount;
    mount.op = static_cast<uint8_t>(index);
    mount.epoch = state.master.epoch;
    mount.incarnation = next.owners[index].incarnation;
    bool under_way = false;
    for (const Message& message : state.network) {
      Message claim = message;
      claim.stage = claim.version = 0;
      under_way |= claim == mount;
    }
    if (under_way) continue;
    send(next, mount);
    tidy(next);
    out.fair({"owner %: mounts, incarnation %", index, mount.incarnation}, next);
  }
}

void ObjectModel::restart_owner(State& next, int owner) const {
  if (!is(ObjectMutant::kRemountKeepsIncarnation)) ++next.owners[owner].incarnation;
  next.owners[owner].epoch = 0;
  for (int extent = 0; extent < extents(); ++extent) {
    if (owner_of(extent) == owner) next.extents[extent] = Extent{};
  }
  for (Message& message : next.network) {
    const bool job = message.type == MessageType::kData || message.type == MessageType::kRead;
    if (job && message.stage > 0 && owner_of(message.extent) == owner) message = Message{};
  }
  for (int key = 0; key < kKeys; ++key) {
    const int index = next.master.directory[key] - 1;
    if (index < 0 || owner_of(next.master.record[index].extent) != owner) continue;
    forget_must(next, key);
  }
  // A Master that rebuilds does not know yet what this owner held.
  for (int key = 0; key < kKeys && next.master.rebuilding != 0; ++key)
    forget_must(next, key);
}

void ObjectModel::client_steps(const State& state, int client, Steps<State>& out) const {
  const Client& mine = state.clients[client];
  if (mine.phase == Phase::kDead) return;
  State next = state;
  if (mine.phase == Phase::kIdle) {
    int index = mine.op;
    while (index < ops() && op(index).client != client)
      ++index;
    if (index == ops()) return;
    start(next, client, index);
    tidy(next);
    return out.fair({"client %: begins op %", client, index}, next);
  }
  bool under_way = false;
  for (const Message& message : state.network) {
    const bool any = message.type != MessageType::kNone && message.type != MessageType::kMount;
    under_way |= any && message.op == mine.op && message.attempt == mine.attempt;
  }
  if (under_way && !may(state, kEarlyTimeout)) return;
  if (under_way) --next.faults_left;
  time_out(next, client);
  tidy(next);
  if (under_way) {
    out.fault({"client %: op % is out of patience", client, mine.op}, next);
  } else {
    out.fair({"client %: op % waits in vain", client, mine.op}, next);
  }
}

void ObjectModel::start(State& next, int client, int index) const {
  Client& mine = next.clients[client];
  const int key = op(index).key;
  mine.op = static_cast<uint8_t>(index);
  mine.timeouts_left = 1;
  switch (op(index).kind) {
    case OpKind::kPut:
    case OpKind::kUpsert:
      return ask(next, client, Phase::kGrant);
    case OpKind::kRemove:
      forget_must(next, key);
      return ask(next, client, Phase::kRemove);
    case OpKind::kGet:
      mine.must_hit = (next.must_have & bit(key)) != 0 && next.master.rebuilding == 0 ? 2 : 0;
      mine.forbidden = next.gone;
      return ask(next, client, Phase::kLocate);
  }
}

void ObjectModel::ask(State& next, int client, Phase phase) const {
  Client& mine = next.clients[client];
  mine.phase = phase;
  ++mine.attempt;
  Message request{};
  request.type = kRequestOf[static_cast<int>(phase)];
  request.op = mine.op;
  request.attempt = mine.attempt;
  request.epoch = mine.epoch;
  request.extent = mine.extent;
  request.version = mine.version;
  request.incarnation = mine.incarnation;
  send(next, request);
}

// One repetition for each call, then it ends; what is still on its way may take effect later.
void ObjectModel::time_out(State& next, int client) const {
  Client& mine = next.clients[client];
  if (mine.timeouts_left > 0) {
    --mine.timeouts_left;
    return ask(next, client, mine.phase);
  }
  if (mine.phase == Phase::kRemove) next.unsettled |= bit(op(mine.op).key);
  // A Master that guesses may adopt data that nobody published.
  const bool sure = mine.phase == Phase::kGrant ||
                    (mine.phase == Phase::kData && scenario_.restart != Restart::kGuess);
  end(next, client, sure ? Outcome::kFailed : Outcome::kUnknown);
}

void ObjectModel::receive(State& next, const Message& reply) const {
  const int client = op(reply.op).client;
  Client& mine = next.clients[client];
  if (is_stale(next, reply)) return;
  if (static_cast<MessageType>(reply.stage) != kRequestOf[static_cast<int>(mine.phase)]) return;
  if (reply.code == Code::kWrongEpoch) {
    mine.epoch = reply.epoch;
    // A grant dies with its epoch, but for data that was adopted; the rest may be asked again.
    if (mine.phase == Phase::kPublish && !warm()) return end(next, client, Outcome::kFailed);
    return ask(next, client, mine.phase);
  }
  switch (mine.phase) {
    case Phase::kGrant:
      if (reply.code != Code::kOk) break;
      mine.extent = reply.extent;
      mine.version = reply.version;
      mine.incarnation = reply.incarnation;
      ask(next, client, Phase::kData);
      if (is(ObjectMutant::kPublishBeforeData)) ask(next, client, Phase::kPublish);
      return;
    case Phase::kData:
      if (reply.code != Code::kOk) break;
      return ask(next, client, Phase::kPublish);
    case Phase::kPublish:
    case Phase::kRemove:
      if (reply.code != Code::kOk) break;
      acknowledge_write(next, mine.op);
      return end(next, client, Outcome::kOk);
    default:
      return receive_for_get(next, client, reply);
  }
  end(next, client, reply.code == Code::kExists ? Outcome::kExists : Outcome::kFailed);
}

void ObjectModel::receive_for_get(State& next, int client, const Message& reply) const {
  Client& mine = next.clients[client];
  if (reply.code == Code::kOk && mine.phase == Phase::kRead) return end_get(next, client, reply);
  if (reply.code == Code::kOk) {
    mine.extent = reply.extent;
    mine.version = reply.version;
    mine.incarnation = reply.incarnation;
    return ask(next, client, Phase::kRead);
  }
  // The object moved or went while it was read: ask the Master once more.
  if (mine.phase == Phase::kRead && mine.asked_again == 0 &&
      !is(ObjectMutant::kGetNeverAsksAgain)) {
    mine.asked_again = 1;
    return ask(next, client, Phase::kLocate);
  }
  if (mine.must_hit > 0) next.alarm = ObjectAlarm::kAcknowledgedPutMissing;
  end(next, client, Outcome::kMiss);
}

void ObjectModel::end_get(State& next, int client, const Message& reply) const {
  const Client& mine = next.clients[client];
  const int writer = reply.bytes[0] - 1;
  if (reply.bytes[0] != reply.bytes[1]) {
    next.alarm = ObjectAlarm::kMixedBytes;
  } else if (writer >= 0 && op(writer).key != op(mine.op).key) {
    next.alarm = ObjectAlarm::kOtherKeysBytes;
  } else if (writer < 0 || (next.published & bit(writer)) == 0) {
    next.alarm = ObjectAlarm::kUnpublishedBytes;
  } else if ((mine.forbidden & bit(writer)) != 0) {
    next.alarm = ObjectAlarm::kStaleBytes;
  } else {
    // Having seen this version, nobody may see an older one.
    next.gone |= next.victims[writer];
  }
  end(next, client, Outcome::kOk);
}

void ObjectModel::end(State& next, int client, Outcome outcome) const {
  Client& mine = next.clients[client];
  Outcome& place = next.outcome[mine.op];
  if (place != Outcome::kOpen) next.alarm = ObjectAlarm::kSecondOutcome;
  place = outcome;
  const Client old = mine;
  mine = Client{};
  mine.op = static_cast<uint8_t>(old.op + 1);
  mine.epoch = old.epoch;
}

// A put, upsert or remove was answered: what it replaced is gone for good, and what it wrote has to
// be found from now on, unless its owner lost it or somebody took it away in the meantime.
void ObjectModel::acknowledge_write(State& next, int index) const {
  next.gone |= next.victims[index];
  const int key = op(index).key;
  if (op(index).kind == OpKind::kRemove) return;
  if (next.master.directory[key] != index + 1 || (next.unsettled & bit(key)) != 0) return;
  if (!holds(next, next.master.record[index])) return;
  for (const Client& client : next.clients) {
    if (client.phase == Phase::kRemove && op(client.op).key == key) return;
  }
  next.must_have |= bit(key);
}

}  // namespace mooncake::models
