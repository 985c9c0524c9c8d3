// The gate: how a process that copies into or out of another process's mapped memory, and the owner
// of that memory, agree that no byte moves once the owner has taken the memory back.
// README.md explains the protocol and numbers its steps; the same numbers stand in the labels.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "explorer.h"

namespace mooncake::models {

// One safeguard less. kNone is the protocol as it has to be built.
enum class GateMutant : uint8_t {
  kNone,
  kNoCopierFence,           // step 2 left out
  kNoOwnerFence,            // the same on the owner's side
  kNoRecheck,               // step 3 left out
  kRecheckSkipsClosing,     // step 3 looks at the generation only
  kNoSfenceBeforeClear,     // step 6 left out
  kClearBeforeCopyEnds,     // step 7 between the two cells
  kNoGenerationReread,      // reads: step 5 left out
  kTakesCurrentGeneration,  // publishes what the registration shows, not what it was promised
  kReturnsAtDeadline,       // the caller returns while its copy has not signed off
  kUnregisterDoesNotWait,
  kUnregisterHasNoDeadline,
  kDeadlineIsSuccess,
  kQuarantineReusedAtOnce,
  kPeerExitNotNoticed,
  kAnySlotBlocks,       // unregister waits for slots of generations that ended long ago
  kNoSfenceAfterOdd,    // the extent's writer lets its stores overtake the odd word
  kNoSfenceBeforeEven,  // ... or lets the even word overtake its stores
};

enum class Role : uint8_t { kNone, kWrite, kRead };

struct GateScenario {
  std::array<Role, 2> roles{Role::kNone, Role::kNone};
  std::array<uint8_t, 2> calls{0, 0};  // calls each copier makes
  uint8_t registrations = 1;           // how often the owner registers the range in all
  uint8_t rewrites = 0;                // how often the owner puts a new version into the extent
  bool may_close = false;              // the owner may close its engine instead of unregistering
  uint8_t faults = 0;                  // stops and deaths in all
  bool bytes_only = false;             // judge by bytes alone, not by who is inside the gate
  GateMutant mutant = GateMutant::kNone;
};

enum class Life : uint8_t { kRuns, kStopped, kKilled, kExited };

// What a copier is about to do.
enum class CopierAt : uint8_t {
  kIdle,
  kPublish,
  kFence,
  kRecheck,
  kCheckWord,
  kCopyFirst,
  kEarlyClear,  // only with kClearBeforeCopyEnds
  kCopySecond,
  kRereadWord,
  kSfence,
  kClear,
  kReturn
};

enum class CopierResult : uint8_t { kOpen, kOk, kRefused, kMismatch, kTimedOut };

enum class OwnerAt : uint8_t {
  kIdle,
  kUnregisterFence,
  kScan,
  kQuarantined,
  kUserWritesFirst,
  kUserWritesSecond,
  kUserOwns,
  kRegisterFence,
  kOddSfence,
  kStoreFirst,
  kStoreSecond,
  kEvenSfence,
  kTell
};

// Where the first bad thing happened; set by the step that does it.
enum class GateAlarm : uint8_t {
  kNone,
  kStoreAfterRelease,
  kWrongBytesRead,
  kReturnedTooEarly,
  kNeedlessBusy
};

// All fields are bytes, so that a state has no padding. Stores go through a first-in-first-out
// buffer (`buffer`); data goes by non-temporal stores, which reach memory in any order (`pending`
// has one bit per cell).
struct CopierState {
  CopierAt at;
  Life life;
  CopierResult result;
  uint8_t calls_left;
  uint8_t asked;    // generation that the descriptor named when the call began
  uint8_t used;     // generation that the slot names; equals `asked` but in one mutant
  uint8_t promise;  // version that a read was promised
  uint8_t pending;
  std::array<uint8_t, 2> local;
  uint8_t buffered;
  std::array<uint8_t, 4> buffer;  // values for this copier's slot
};

struct OwnerState {
  OwnerAt at;
  Life life;
  uint8_t registrations_left;
  uint8_t rewrites_left;
  uint8_t registered;  // generation that descriptors name now; 0: not registered
  uint8_t retiring;    // generation that unregister takes back
  uint8_t released;    // highest generation whose memory the user may use again
  uint8_t scan;        // next slot to look at
  uint8_t version;     // version that new reads are promised
  uint8_t storing;     // version that a rewrite stores
  uint8_t pending;
  uint8_t buffered;
  std::array<uint8_t, 4> target;  // Word to store to
  std::array<uint8_t, 4> value;
};

struct GateState {
  // Shared memory.
  uint8_t generation;
  uint8_t closing;
  uint8_t word;  // the extent's: version << 1 | being written
  std::array<uint8_t, 2> cell;
  std::array<uint8_t, 2> slot;  // 0: empty, else a generation
  // The processes.
  std::array<CopierState, 2> copier;
  OwnerState owner;
  uint8_t faults_left;
  GateAlarm alarm;
};

class GateModel {
 public:
  using State = GateState;

  explicit GateModel(const GateScenario& scenario) : scenario_(scenario) {}

  State initial() const;
  void steps(const State& state, Steps<State>& out) const;
  const char* broken(const State& state) const;
  bool settled(const State& state) const;
  std::string describe(const State& state) const;

 private:
  bool is(GateMutant mutant) const { return scenario_.mutant == mutant; }

  void drain_steps(const State& state, Steps<State>& out) const;
  void copier_steps(const State& state, int index, Steps<State>& out) const;
  void copy_steps(const State& state, int index, Steps<State>& out) const;
  void owner_idle_steps(const State& state, Steps<State>& out) const;
  void retire_steps(const State& state, Steps<State>& out) const;
  void reuse_steps(const State& state, Steps<State>& out) const;
  void rewrite_steps(const State& state, Steps<State>& out) const;
  void fault_steps(const State& state, Steps<State>& out) const;

  void start_call(State& next, int index) const;
  void recheck(State& next, int index) const;
  void copy_cell(State& next, int index, int cell) const;
  void end_call(State& next, int index) const;
  void land(State& next, int index, int cell) const;
  bool blocks(const State& state, int index) const;

  GateScenario scenario_;
};

}  // namespace mooncake::models
