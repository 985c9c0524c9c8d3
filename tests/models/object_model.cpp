// The explorer's view: which steps there are, faults, and what has to hold.
#include "object_model.h"

#include <algorithm>
#include <cstdio>
#include <functional>

namespace mooncake::models {
namespace {

constexpr uint8_t kImpostorsIncarnation = 99;
constexpr const char* kDeliver[] = {
    "", "Master: grant for op %", "", "Master: publish of op %",          "Master: locate for op %",
    "", "Master: remove by op %", "", "client: reply to op % (request %)"};
constexpr const char* kLose[] = {"",
                                 "lost: grant request of op %",
                                 "lost: data of op %",
                                 "lost: publish request of op %",
                                 "lost: locate request of op %",
                                 "lost: read request of op %",
                                 "lost: remove request of op %",
                                 "lost: mount of owner %",
                                 "lost: reply to op %"};
constexpr const char* kCopy[] = {"",
                                 "repeated: grant request of op %",
                                 "repeated: data of op %",
                                 "repeated: publish request of op %",
                                 "repeated: locate request of op %",
                                 "repeated: read request of op %",
                                 "repeated: remove request of op %",
                                 "repeated: mount of owner %",
                                 ""};

}  // namespace

int ObjectModel::clients() const {
  int count = 0;
  for (const Op& each : scenario_.ops)
    count = std::max(count, each.client + 1);
  return count;
}

ObjectState ObjectModel::initial() const {
  State state{};
  state.master.epoch = 1;
  for (int owner = 0; owner < kOwners; ++owner) {
    state.master.incarnation[owner] = 1;
    state.owners[owner] = {1, 1};
  }
  state.master.free_extents = static_cast<uint8_t>((1 << extents()) - 1);
  for (int client = 0; client < clients(); ++client)
    state.clients[client].epoch = 1;
  state.faults_left = scenario_.fault_budget;
  return state;
}

void ObjectModel::steps(const State& state, Steps<State>& out) const {
  if (state.alarm != ObjectAlarm::kNone) return;
  for (int index = 0; index < kMaxMessages; ++index)
    deliver_steps(state, index, out);
  for (int client = 0; client < clients(); ++client)
    client_steps(state, client, out);
  master_steps(state, out);
  if (warm()) stream_steps(state, out);
  owner_steps(state, out);
  network_fault_steps(state, out);
  fault_steps(state, out);
}

void ObjectModel::send(State& next, const Message& message) const {
  for (Message& place : next.network) {
    if (place.type != MessageType::kNone) continue;
    place = message;
    return;
  }
  next.alarm = ObjectAlarm::kNetworkFull;
}

void ObjectModel::answer(State& next, const Message& request, Code code) const {
  Message reply = request;
  reply.type = MessageType::kReply;
  reply.stage = static_cast<uint8_t>(request.type);
  reply.code = code;
  reply.epoch = next.master.epoch;
  send(next, reply);
}

// Nobody waits for this answer any more, and nobody ever will.
bool ObjectModel::is_stale(const State& state, const Message& message) const {
  const Client& client = state.clients[op(message.op).client];
  const bool waits = client.phase != Phase::kIdle && client.phase != Phase::kDead;
  if (!waits || client.op != message.op) return true;
  return client.attempt != message.attempt && !is(ObjectMutant::kRepliesMatchCallOnly);
}

// One state for all orders of the same messages, without those that can't have an effect any more.
void ObjectModel::tidy(State& next) const {
  for (Message& message : next.network) {
    const bool harmless = message.type == MessageType::kReply ||
                          message.type == MessageType::kLocate ||
                          message.type == MessageType::kRead;
    if (harmless && is_stale(next, message)) message = Message{};
  }
  std::sort(next.network.begin(), next.network.end(), std::greater<>());
}

void ObjectModel::deliver_steps(const State& state, int index, Steps<State>& out) const {
  const Message message = state.network[index];
  if (message.type == MessageType::kNone) return;
  State next = state;
  next.network[index] = Message{};
  Label label{kDeliver[static_cast<int>(message.type)], message.op, message.attempt};
  const bool for_master =
      message.type == MessageType::kGrant || message.type == MessageType::kPublish ||
      message.type == MessageType::kLocate || message.type == MessageType::kRemove;
  if (for_master && message.epoch < state.master.epoch &&
      !is(ObjectMutant::kMasterAcceptsOldEpochs)) {
    answer(next, message, Code::kWrongEpoch);
    label = {"Master: refuses op %, epoch is %", message.op, state.master.epoch};
  } else if (for_master && state.master.rebuilding != 0 && message.type != MessageType::kLocate) {
    return;  // waits until all owners have announced
  } else if (message.type == MessageType::kGrant) {
    return grant_steps(next, message, out);
  } else if (message.type == MessageType::kData) {
    label = work_on_data(next, message);
  } else if (message.type == MessageType::kRead) {
    label = work_on_read(next, message);
  } else if (message.type == MessageType::kPublish) {
    publish(next, message);
  } else if (message.type == MessageType::kLocate) {
    locate(next, message);
  } else if (message.type == MessageType::kRemove) {
    remove(next, message);
  } else if (message.type == MessageType::kMount) {
    label = mount(next, message);
  } else {
    receive(next, message);
  }
  tidy(next);
  out.fair(label, next);
}

void ObjectModel::network_fault_steps(const State& state, Steps<State>& out) const {
  for (int index = 0; index < kMaxMessages; ++index) {
    const Message& message = state.network[index];
    if (message.type == MessageType::kNone) continue;
    const int type = static_cast<int>(message.type);
    State next = state;
    --next.faults_left;
    if (may(state, kLoss)) {
      // At an owner that is at work on it: the connection is cut and the rest never comes.
      next.network[index] = Message{};
      tidy(next);
      out.fault({kLose[type], message.op}, next);
    }
    if (may(state, kRepeat) && message.type != MessageType::kReply && message.stage == 0) {
      next = state;
      --next.faults_left;
      send(next, message);
      tidy(next);
      out.fault({kCopy[type], message.op}, next);
    }
  }
}

void ObjectModel::fault_steps(const State& state, Steps<State>& out) const {
  State spent = state;
  --spent.faults_left;
  if (may(state, kMasterRestart)) {
    State next = spent;
    restart_master(next);
    tidy(next);
    out.fault({"Master restarts, epoch %", next.master.epoch}, next);
  }
  for (int owner = 0; owner < kOwners && may(state, kOwnerRestart); ++owner) {
    State next = spent;
    restart_owner(next, owner);
    tidy(next);
    out.fault({"owner % restarts", owner}, next);
  }
  if (may(state, kImpostor)) {
    State next = spent;
    Message claim{};
    claim.type = MessageType::kMount;
    claim.epoch = next.master.epoch;
    claim.incarnation = kImpostorsIncarnation;
    send(next, claim);
    tidy(next);
    out.fault({"an impostor claims the name of owner 0"}, next);
  }
  for (int key = 0; key < kKeys && may(state, kEvict); ++key) {
    if (state.master.directory[key] == 0) continue;
    State next = spent;
    drop_key(next, key, true);
    forget_must(next, key);
    out.fault({"Master evicts key %", key}, next);
  }
  for (int client = 0; client < clients() && may(state, kClientDeath); ++client) {
    const Client& old = state.clients[client];
    if (old.phase == Phase::kDead) continue;
    State next = spent;
    if (old.phase == Phase::kRemove) next.unsettled |= static_cast<uint8_t>(1 << op(old.op).key);
    next.clients[client] = Client{};
    next.clients[client].phase = Phase::kDead;
    tidy(next);
    out.fault({"client % dies", client}, next);
  }
}

bool ObjectModel::holds(const State& state, const Record& record) const {
  return state.owners[owner_of(record.extent)].incarnation == record.incarnation &&
         state.extents[record.extent].word == record.version << 1;
}

const char* ObjectModel::broken(const State& state) const {
  switch (state.alarm) {
    case ObjectAlarm::kMixedBytes:
      return "a get returns the bytes of one version";
    case ObjectAlarm::kOtherKeysBytes:
      return "a get returns its own key's bytes";
    case ObjectAlarm::kUnpublishedBytes:
      return "a get returns bytes that were published";
    case ObjectAlarm::kStaleBytes:
      return "a get that begins after a remove or upsert was answered returns nothing older";
    case ObjectAlarm::kAcknowledgedPutMissing:
      return "an object that was put and not taken away is found";
    case ObjectAlarm::kSecondOutcome:
      return "each call ends once";
    case ObjectAlarm::kRemoveAppliedTwice:
      return "each remove has one effect";
    case ObjectAlarm::kNetworkFull:
      return "the model's network has room";
    case ObjectAlarm::kNone:
      break;
  }
  for (int extent = 0; extent < extents(); ++extent) {
    if (const char* name = broken_extent(state, extent)) return name;
  }
  for (int key = 0; key < kKeys; ++key) {
    const int index = state.master.directory[key] - 1;
    if (index < 0) continue;
    if (state.outcome[index] == Outcome::kFailed) return "a put that failed is not published";
    if (state.outcome[index] == Outcome::kExists) return "a put that came second is not published";
    const Record& record = state.master.record[index];
    if (state.owners[owner_of(record.extent)].incarnation != record.incarnation) continue;
    const auto& cells = state.extents[record.extent].cells;
    if (!holds(state, record) || cells[0] != index + 1 || cells[1] != index + 1) {
      return "what is published lies whole at its owner";
    }
  }
  return nullptr;
}

const char* ObjectModel::broken_extent(const State& state, int extent) const {
  const Master& master = state.master;
  int grants = 0;
  int uses = master.free_extents >> extent & 1;
  for (int index = 0; index < ops(); ++index) {
    const Record& record = master.record[index];
    if (record.state == RecordState::kGranted && record.extent == extent) ++grants;
  }
  for (uint8_t entry : master.directory) {
    if (entry != 0 && master.record[entry - 1].extent == extent) ++uses;
  }
  if (grants > 1) return "no two grants cover the same extent";
  const bool mounted = master.incarnation[owner_of(extent)] != 0 && master.rebuilding == 0;
  if (grants + uses != (mounted ? 1 : 0)) {
    return "each extent is free, granted or published exactly once";
  }
  return nullptr;
}

// All calls have ended, nothing is on its way, no grant is left over, and all owners are mounted.
bool ObjectModel::settled(const State& state) const {
  for (int index = 0; index < ops(); ++index) {
    const bool dead = state.clients[op(index).client].phase == Phase::kDead;
    if (state.outcome[index] == Outcome::kOpen && !dead) return false;
    if (state.master.record[index].state == RecordState::kGranted) return false;
  }
  for (const Message& message : state.network) {
    if (message.type != MessageType::kNone) return false;
  }
  for (int owner = 0; owner < kOwners; ++owner) {
    if (state.master.incarnation[owner] != state.owners[owner].incarnation) return false;
    if (state.owners[owner].epoch != state.master.epoch) return false;
  }
  return state.master.late_removes == 0;
}

std::string ObjectModel::describe(const State& state) const {
  static const char* const kOutcome[] = {"-", "ok", "exists", "miss", "failed", "unknown"};
  char part[80];
  const Master& master = state.master;
  std::snprintf(part, sizeof part, "epoch %d keys %d %d free %d%d%d mounted %d %d |", master.epoch,
                master.directory[0], master.directory[1], master.free_extents & 1,
                master.free_extents >> 1 & 1, master.free_extents >> 2 & 1, master.incarnation[0],
                master.incarnation[1]);
  std::string out = part;
  for (int extent = 0; extent < extents(); ++extent) {
    const Extent& each = state.extents[extent];
    std::snprintf(part, sizeof part, " %d.%d%s:%d%d", each.word >> 4, each.word >> 1 & 7,
                  (each.word & 1) != 0 ? "w" : "", each.cells[0], each.cells[1]);
    out += part;
  }
  out += " | ends";
  for (int index = 0; index < ops(); ++index) {
    out += std::string(" ") + kOutcome[static_cast<int>(state.outcome[index])];
  }
  return out;
}

}  // namespace mooncake::models
