#include "gate_model.h"

#include <cstdio>

namespace mooncake::models {
namespace {

// Words that the owner stores to through its buffer.
enum Word : uint8_t { kGenerationWord, kClosingWord, kExtentWord };

// Contents of cells, apart from version numbers, which are small.
constexpr uint8_t kUserBytes = 0x77;
constexpr uint8_t kCopierBytes = 0xc0;  // + index of the copier

bool drained(const CopierState& copier) { return copier.buffered == 0 && copier.pending == 0; }
bool drained(const OwnerState& owner) { return owner.buffered == 0 && owner.pending == 0; }

void push(OwnerState& owner, Word word, uint8_t value) {
  owner.target[owner.buffered] = word;
  owner.value[owner.buffered] = value;
  ++owner.buffered;
}

void push(CopierState& copier, uint8_t slot) { copier.buffer[copier.buffered++] = slot; }

bool has_room(const CopierState& copier) { return copier.buffered < copier.buffer.size(); }
bool has_room(const OwnerState& owner) { return owner.buffered < owner.target.size(); }

void drain_one(GateState& state) {
  OwnerState& owner = state.owner;
  if (owner.target[0] == kGenerationWord) state.generation = owner.value[0];
  if (owner.target[0] == kClosingWord) state.closing = owner.value[0];
  if (owner.target[0] == kExtentWord) state.word = owner.value[0];
  for (size_t at = 1; at < owner.target.size(); ++at) {
    owner.target[at - 1] = owner.target[at];
    owner.value[at - 1] = owner.value[at];
  }
  owner.target.back() = 0;
  owner.value.back() = 0;
  --owner.buffered;
}

void drain_one(GateState& state, int index) {
  CopierState& copier = state.copier[index];
  state.slot[index] = copier.buffer[0];
  for (size_t at = 1; at < copier.buffer.size(); ++at)
    copier.buffer[at - 1] = copier.buffer[at];
  copier.buffer.back() = 0;
  --copier.buffered;
}

void raise(GateState& state, GateAlarm alarm) {
  if (state.alarm == GateAlarm::kNone) state.alarm = alarm;
}

// Between a passed re-check and the clearing of the slot.
bool is_inside(const CopierState& copier) {
  return copier.life != Life::kExited && copier.result == CopierResult::kOpen &&
         copier.at > CopierAt::kRecheck && copier.at < CopierAt::kReturn;
}

bool takes_steps(Life life) { return life == Life::kRuns; }

}  // namespace

GateState GateModel::initial() const {
  State state{};
  for (int index = 0; index < 2; ++index) {
    state.copier[index].calls_left = scenario_.calls[index];
  }
  state.generation = 1;
  state.owner.registered = 1;
  state.owner.registrations_left = static_cast<uint8_t>(scenario_.registrations - 1);
  state.owner.rewrites_left = scenario_.rewrites;
  state.owner.version = 1;
  state.word = 1 << 1;
  state.cell = {1, 1};
  state.faults_left = scenario_.faults;
  return state;
}

void GateModel::steps(const State& state, Steps<State>& out) const {
  if (state.alarm != GateAlarm::kNone) return;
  drain_steps(state, out);
  for (int index = 0; index < 2; ++index) {
    if (takes_steps(state.copier[index].life)) copier_steps(state, index, out);
  }
  if (takes_steps(state.owner.life)) {
    owner_idle_steps(state, out);
    retire_steps(state, out);
    reuse_steps(state, out);
    rewrite_steps(state, out);
  }
  fault_steps(state, out);
}

// Stores become visible. The buffer of a stopped or killed process drains too; a process counts as
// exited only after its last store, as pidfd reports an exit after the last thread has left its
// CPU.
void GateModel::drain_steps(const State& state, Steps<State>& out) const {
  for (int index = 0; index < 2; ++index) {
    const CopierState& copier = state.copier[index];
    if (copier.buffered > 0) {
      State next = state;
      drain_one(next, index);
      out.fair({"copier %: its slot shows %", index, copier.buffer[0]}, next);
    }
    for (int cell = 0; cell < 2; ++cell) {
      if ((copier.pending >> cell & 1) == 0) continue;
      State next = state;
      land(next, index, cell);
      out.fair({"copier %: its store to cell % lands", index, cell}, next);
    }
    if (copier.life == Life::kKilled && drained(copier)) {
      State next = state;
      next.copier[index].life = Life::kExited;
      out.fair({"copier %: its exit shows", index}, next);
    }
  }
  if (state.owner.buffered > 0) {
    State next = state;
    drain_one(next);
    out.fair({"owner: a store shows"}, next);
  }
  for (int cell = 0; cell < 2; ++cell) {
    if ((state.owner.pending >> cell & 1) == 0) continue;
    State next = state;
    next.owner.pending &= static_cast<uint8_t>(~(1 << cell));
    next.cell[cell] = state.owner.storing;
    out.fair({"owner: its store to cell % lands", cell}, next);
  }
}

// A writer's stores go to the owner's cells, a reader's to its own buffer.
void GateModel::land(State& next, int index, int cell) const {
  CopierState& copier = next.copier[index];
  copier.pending &= static_cast<uint8_t>(~(1 << cell));
  if (scenario_.roles[index] != Role::kWrite) return;
  next.cell[cell] = static_cast<uint8_t>(kCopierBytes + index);
  if (copier.asked <= next.owner.released) raise(next, GateAlarm::kStoreAfterRelease);
}

void GateModel::copier_steps(const State& state, int index, Steps<State>& out) const {
  const CopierState& copier = state.copier[index];
  State next = state;
  CopierState& mine = next.copier[index];
  switch (copier.at) {
    case CopierAt::kIdle:
      if (copier.calls_left == 0 || state.owner.registered == 0) return;
      start_call(next, index);
      return out.fair({"copier %: 0 a call begins, generation %", index, mine.asked}, next);
    case CopierAt::kPublish:
      mine.result = CopierResult::kTimedOut;
      mine.at = CopierAt::kReturn;
      out.fair({"copier %: deadline before the chunk", index}, next);
      if (!has_room(copier)) return;
      next = state;
      if (is(GateMutant::kTakesCurrentGeneration)) mine.used = state.generation;
      push(mine, mine.used);
      mine.at = is(GateMutant::kNoCopierFence) ? CopierAt::kRecheck : CopierAt::kFence;
      return out.fair({"copier %: 1 publishes generation %", index, mine.used}, next);
    case CopierAt::kFence:
      if (!drained(copier)) return;
      mine.at = CopierAt::kRecheck;
      return out.fair({"copier %: 2 fence", index}, next);
    case CopierAt::kRecheck:
      recheck(next, index);
      return out.fair({"copier %: 3 re-check, memory shows %", index, state.generation}, next);
    case CopierAt::kClear:
      if (!has_room(copier)) return;
      push(mine, 0);
      mine.at = CopierAt::kReturn;
      return out.fair({"copier %: 7 clears its slot", index}, next);
    case CopierAt::kReturn:
      end_call(next, index);
      return out.fair({"copier %: 8 returns, result %", index,
                       static_cast<int>(copier.result == CopierResult::kOpen ? CopierResult::kOk
                                                                             : copier.result)},
                      next);
    default:
      return copy_steps(state, index, out);
  }
}

void GateModel::copy_steps(const State& state, int index, Steps<State>& out) const {
  const CopierState& copier = state.copier[index];
  State next = state;
  CopierState& mine = next.copier[index];
  switch (copier.at) {
    case CopierAt::kCheckWord:
      mine.at = CopierAt::kCopyFirst;
      if (state.word != copier.promise << 1) {
        mine.result = CopierResult::kMismatch;
        mine.at = CopierAt::kClear;
      }
      return out.fair({"copier %: 4 reads the extent's word, %", index, state.word}, next);
    case CopierAt::kCopyFirst:
      copy_cell(next, index, 0);
      mine.at =
          is(GateMutant::kClearBeforeCopyEnds) ? CopierAt::kEarlyClear : CopierAt::kCopySecond;
      return out.fair({"copier %: 4 copies cell 0", index}, next);
    case CopierAt::kEarlyClear:
      if (!has_room(copier)) return;
      push(mine, 0);
      mine.at = CopierAt::kCopySecond;
      return out.fair({"copier %: clears its slot too early", index}, next);
    case CopierAt::kCopySecond:
      mine.result = CopierResult::kTimedOut;
      mine.at = is(GateMutant::kReturnsAtDeadline) ? CopierAt::kReturn : CopierAt::kSfence;
      out.fair({"copier %: deadline inside the chunk", index}, next);
      next = state;
      copy_cell(next, index, 1);
      mine.at = scenario_.roles[index] == Role::kRead && !is(GateMutant::kNoGenerationReread)
                    ? CopierAt::kRereadWord
                    : CopierAt::kSfence;
      return out.fair({"copier %: 4 copies cell 1", index}, next);
    case CopierAt::kRereadWord:
      if (state.word != copier.promise << 1) mine.result = CopierResult::kMismatch;
      mine.at = CopierAt::kSfence;
      return out.fair({"copier %: 5 re-reads the extent's word, %", index, state.word}, next);
    case CopierAt::kSfence:
      if (copier.pending != 0 && !is(GateMutant::kNoSfenceBeforeClear)) return;
      mine.at = is(GateMutant::kClearBeforeCopyEnds) ? CopierAt::kReturn : CopierAt::kClear;
      return out.fair({"copier %: 6 sfence", index}, next);
    default:
      return;
  }
}

void GateModel::start_call(State& next, int index) const {
  CopierState& mine = next.copier[index];
  --mine.calls_left;
  mine.asked = next.owner.registered;
  mine.used = mine.asked;
  mine.promise = next.owner.version;
  mine.at = CopierAt::kPublish;
}

void GateModel::recheck(State& next, int index) const {
  CopierState& mine = next.copier[index];
  // Odd: somebody has the range registered.
  const bool generation_holds = next.generation == mine.used && next.generation % 2 == 1;
  const bool open = next.closing == 0 || is(GateMutant::kRecheckSkipsClosing);
  if ((generation_holds && open) || is(GateMutant::kNoRecheck)) {
    mine.at = scenario_.roles[index] == Role::kRead ? CopierAt::kCheckWord : CopierAt::kCopyFirst;
    return;
  }
  mine.result = CopierResult::kRefused;
  mine.at = CopierAt::kClear;
}

void GateModel::copy_cell(State& next, int index, int cell) const {
  CopierState& mine = next.copier[index];
  if (scenario_.roles[index] == Role::kRead) mine.local[cell] = next.cell[cell];
  mine.pending |= static_cast<uint8_t>(1 << cell);
}

void GateModel::end_call(State& next, int index) const {
  CopierState& mine = next.copier[index];
  if (mine.pending != 0) raise(next, GateAlarm::kReturnedTooEarly);
  if (scenario_.roles[index] == Role::kRead && mine.result == CopierResult::kOpen) {
    for (uint8_t value : mine.local) {
      // A range that a peer writes in place may show the peer's bytes; nothing else is excused.
      if (value != mine.promise && value < kCopierBytes) raise(next, GateAlarm::kWrongBytesRead);
    }
  }
  const CopierState old = mine;
  mine = CopierState{};
  mine.calls_left = old.calls_left;
  mine.pending = old.pending;
  mine.asked = old.pending != 0 ? old.asked : 0;
  mine.buffered = old.buffered;
  mine.buffer = old.buffer;
}

// Does the slot keep unregister from ending? A slot names one registration and generation: one of
// another generation belongs to a copier that is past its copy or will fail its re-check.
bool GateModel::blocks(const State& state, int index) const {
  const uint8_t slot = state.slot[index];
  if (slot == 0) return false;
  if (state.copier[index].life == Life::kExited && !is(GateMutant::kPeerExitNotNoticed)) {
    return false;
  }
  return slot == state.owner.retiring || is(GateMutant::kAnySlotBlocks);
}

void GateModel::owner_idle_steps(const State& state, Steps<State>& out) const {
  const OwnerState& owner = state.owner;
  if (owner.at != OwnerAt::kIdle || !has_room(owner)) return;
  State next = state;
  if (owner.rewrites_left > 0) {
    --next.owner.rewrites_left;
    next.owner.storing = static_cast<uint8_t>(owner.version + 1);
    push(next.owner, kExtentWord, static_cast<uint8_t>(next.owner.storing << 1 | 1));
    next.owner.at = is(GateMutant::kNoSfenceAfterOdd) ? OwnerAt::kStoreFirst : OwnerAt::kOddSfence;
    out.fair({"owner: w1 the extent's word goes odd"}, next);
  }
  next = state;
  next.owner.at = is(GateMutant::kNoOwnerFence) ? OwnerAt::kScan : OwnerAt::kUnregisterFence;
  next.owner.retiring = owner.registered;
  next.owner.registered = 0;
  next.owner.scan = 0;
  State closing = next;
  push(next.owner, kGenerationWord, static_cast<uint8_t>(owner.registered + 1));
  out.fair({"owner: u1 unregister, generation raised to %", owner.registered + 1}, next);
  if (!scenario_.may_close) return;
  push(closing.owner, kClosingWord, 1);
  out.fair({"owner: u1 close, flag raised"}, closing);
}

void GateModel::retire_steps(const State& state, Steps<State>& out) const {
  const OwnerState& owner = state.owner;
  State next = state;
  if (owner.at == OwnerAt::kUnregisterFence && drained(owner)) {
    next.owner.at = OwnerAt::kScan;
    return out.fair({"owner: u2 fence"}, next);
  }
  if (owner.at == OwnerAt::kScan && owner.scan < 2) {
    if (!blocks(state, owner.scan) || is(GateMutant::kUnregisterDoesNotWait)) {
      ++next.owner.scan;
      return out.fair({"owner: u3 slot % does not block", owner.scan}, next);
    }
    if (is(GateMutant::kUnregisterHasNoDeadline)) return;
    if (state.slot[owner.scan] != owner.retiring) raise(next, GateAlarm::kNeedlessBusy);
    if (is(GateMutant::kDeadlineIsSuccess)) {
      next.owner.released = owner.retiring;
      next.owner.at = OwnerAt::kUserWritesFirst;
      return out.fair({"owner: u4 deadline taken as success"}, next);
    }
    next.owner.at = OwnerAt::kQuarantined;
    return out.fair({"owner: u4 deadline, returns busy, quarantine"}, next);
  }
  if (owner.at == OwnerAt::kScan) {
    next.owner.released = owner.retiring;
    next.owner.at = OwnerAt::kUserWritesFirst;
    return out.fair({"owner: u5 unregister returns success"}, next);
  }
  if (owner.at != OwnerAt::kQuarantined) return;
  const bool empty = !blocks(state, 0) && !blocks(state, 1);
  if (!empty && !is(GateMutant::kQuarantineReusedAtOnce)) return;
  next.owner.released = owner.retiring;
  next.owner.at = OwnerAt::kUserWritesFirst;
  out.fair({"owner: u6 the quarantine is empty"}, next);
}

// The user has the memory again and may hand it in once more.
void GateModel::reuse_steps(const State& state, Steps<State>& out) const {
  const OwnerState& owner = state.owner;
  State next = state;
  if (owner.at == OwnerAt::kUserWritesFirst) {
    next.cell[0] = kUserBytes;
    next.owner.at = OwnerAt::kUserWritesSecond;
    return out.fair({"owner: the user writes cell 0"}, next);
  }
  if (owner.at == OwnerAt::kUserWritesSecond) {
    next.cell[1] = kUserBytes;
    next.owner.at = OwnerAt::kUserOwns;
    return out.fair({"owner: the user writes cell 1"}, next);
  }
  if (owner.at == OwnerAt::kUserOwns && owner.registrations_left > 0 && state.closing == 0) {
    --next.owner.registrations_left;
    push(next.owner, kGenerationWord, static_cast<uint8_t>(owner.retiring + 2));
    next.owner.at = OwnerAt::kRegisterFence;
    return out.fair({"owner: r1 registers again, generation %", owner.retiring + 2}, next);
  }
  if (owner.at != OwnerAt::kRegisterFence || !drained(owner)) return;
  // Nobody knows the new generation yet, so this may be one step.
  next.owner.version = static_cast<uint8_t>(owner.version + 1);
  next.word = static_cast<uint8_t>(next.owner.version << 1);
  next.cell = {next.owner.version, next.owner.version};
  next.owner.registered = static_cast<uint8_t>(owner.retiring + 2);
  next.owner.retiring = 0;
  next.owner.at = OwnerAt::kIdle;
  out.fair({"owner: r2 hands out descriptors"}, next);
}

// A new version goes into the extent while it stays registered; readers find out by its word.
void GateModel::rewrite_steps(const State& state, Steps<State>& out) const {
  const OwnerState& owner = state.owner;
  State next = state;
  switch (owner.at) {
    case OwnerAt::kOddSfence:
      if (!drained(owner)) return;
      next.owner.at = OwnerAt::kStoreFirst;
      return out.fair({"owner: w2 sfence"}, next);
    case OwnerAt::kStoreFirst:
      next.owner.pending |= 1;
      next.owner.at = OwnerAt::kStoreSecond;
      return out.fair({"owner: w3 stores cell 0"}, next);
    case OwnerAt::kStoreSecond:
      next.owner.pending |= 2;
      next.owner.at = OwnerAt::kEvenSfence;
      return out.fair({"owner: w3 stores cell 1"}, next);
    case OwnerAt::kEvenSfence:
      if (owner.pending != 0 && !is(GateMutant::kNoSfenceBeforeEven)) return;
      if (!has_room(owner)) return;
      push(next.owner, kExtentWord, static_cast<uint8_t>(owner.storing << 1));
      next.owner.at = OwnerAt::kTell;
      return out.fair({"owner: w4 sfence, then the word goes even"}, next);
    case OwnerAt::kTell:
      next.owner.version = owner.storing;
      next.owner.at = OwnerAt::kIdle;
      return out.fair({"owner: w5 the new version is told"}, next);
    default:
      return;
  }
}

void GateModel::fault_steps(const State& state, Steps<State>& out) const {
  for (int index = 0; index < 2; ++index) {
    if (scenario_.roles[index] == Role::kNone) continue;
    const Life life = state.copier[index].life;
    State next = state;
    if (life == Life::kStopped) {
      next.copier[index].life = Life::kRuns;
      out.fault({"copier %: is resumed", index}, next);
    }
    if (state.faults_left == 0 || life == Life::kKilled || life == Life::kExited) continue;
    --next.faults_left;
    if (life == Life::kRuns) {
      next.copier[index].life = Life::kStopped;
      out.fault({"copier %: is stopped", index}, next);
    }
    next.copier[index].life = Life::kKilled;
    out.fault({"copier %: is killed", index}, next);
  }
  const Life life = state.owner.life;
  State next = state;
  if (life == Life::kStopped) {
    next.owner.life = Life::kRuns;
    out.fault({"owner: is resumed"}, next);
  }
  if (state.faults_left == 0 || life == Life::kKilled) return;
  --next.faults_left;
  if (life == Life::kRuns) {
    next.owner.life = Life::kStopped;
    out.fault({"owner: is stopped"}, next);
  }
  next.owner.life = Life::kKilled;
  out.fault({"owner: is killed"}, next);
}

const char* GateModel::broken(const State& state) const {
  switch (state.alarm) {
    case GateAlarm::kStoreAfterRelease:
      return "no store lands in memory that was given back";
    case GateAlarm::kWrongBytesRead:
      return "a read that succeeds returns the promised version only";
    case GateAlarm::kReturnedTooEarly:
      return "no byte moves after the copier's call returned";
    case GateAlarm::kNeedlessBusy:
      return "only a slot of the generation that ends makes unregister busy";
    case GateAlarm::kNone:
      break;
  }
  if (scenario_.bytes_only) return nullptr;
  for (const CopierState& copier : state.copier) {
    if (is_inside(copier) && copier.asked <= state.owner.released) {
      return "nobody is inside the gate when its memory is given back";
    }
  }
  return nullptr;
}

// Every process that can still run has returned from its call, and memory is in quarantine only for
// the sake of a copier that is stopped.
bool GateModel::settled(const State& state) const {
  bool held = false;
  for (int index = 0; index < 2; ++index) {
    const CopierState& copier = state.copier[index];
    if (copier.life == Life::kRuns && copier.at != CopierAt::kIdle) return false;
    if (copier.life == Life::kKilled || !drained(copier)) return false;
    if (copier.life == Life::kStopped && state.slot[index] != 0 &&
        state.slot[index] == state.owner.retiring) {
      held = true;
    }
  }
  if (!takes_steps(state.owner.life)) return true;
  switch (state.owner.at) {
    case OwnerAt::kIdle:
    case OwnerAt::kUserOwns:
      return true;
    case OwnerAt::kQuarantined:
      return held;
    default:
      return false;
  }
}

std::string GateModel::describe(const State& state) const {
  static const char* const kLife[] = {"runs", "stopped", "killed", "exited"};
  char line[200];
  std::snprintf(line, sizeof line,
                "generation %d%s word %d cells %02x %02x slots %d %d on their way %d %d | "
                "%s %s owner %s, given back %d",
                state.generation, state.closing != 0 ? " closing" : "", state.word, state.cell[0],
                state.cell[1], state.slot[0], state.slot[1],
                state.copier[0].buffered + (state.copier[0].pending != 0),
                state.copier[1].buffered + (state.copier[1].pending != 0),
                kLife[static_cast<int>(state.copier[0].life)],
                kLife[static_cast<int>(state.copier[1].life)],
                kLife[static_cast<int>(state.owner.life)], state.owner.released);
  return line;
}

}  // namespace mooncake::models
