// Objects: put, upsert, get and remove against one Master that may restart and lose its directory,
// and two owners of memory that may restart and lose their bytes, over a network that loses,
// repeats and delays. README.md explains the protocol.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "explorer.h"

namespace mooncake::models {

// One safeguard less. kNone is the protocol as it has to be built.
enum class ObjectMutant : uint8_t {
  kNone,
  kOwnerAcceptsOldGrants,
  kOwnerChecksFirstChunkOnly,
  kRepeatedWriteRewrites,  // ... a version that is complete
  kNoCheckAfterCopy,
  kNoCheckOfGeneration,  // neither before nor after: an address is enough to read
  kReadsAnyGeneration,   // takes the generation it finds, and checks that it stays
  kRemountKeepsIncarnation,
  kNewcomerBelieved,       // a mount takes another engine's name without asking who answers
  kDisownsWhoeverIsThere,  // ... not the engine that had the name when it was asked
  kPublishUnchecked,
  kPublishBeforeData,  // the client publishes without waiting for the owner's answer
  kUpsertInPlace,
  kSupersededNotFreed,
  kEpochNotRaised,
  kMasterAcceptsOldEpochs,  // requests that were meant for the Master's former life
  kRemoveAnsweredFirst,
  kRemoveAppliesTwice,    // a repeated remove is a new one
  kPublishAppliesTwice,   // a repeated publish is a new one
  kRepliesMatchCallOnly,  // a late reply to an earlier question of the same call is taken
  kGetNeverAsksAgain,
  kPublishNotJournaled,    // warm restart, here and below
  kHighestVersionAdopted,  // instead of a journal of what was superseded
  kEvictionNotJournaled
};

enum class OpKind : uint8_t { kPut, kUpsert, kGet, kRemove };

struct Op {
  uint8_t client;
  OpKind kind;
  uint8_t key;
};

enum Fault : uint16_t {
  kLoss = 1,
  kRepeat = 2,
  kEarlyTimeout = 4,  // the client asks again although the answer is on its way
  kMasterRestart = 8,
  kOwnerRestart = 16,
  kEarlyRevoke = 32,  // the Master gives up on a writer that is only slow
  kEvict = 64,
  kClientDeath = 128,
  kImpostor = 256,  // an engine claims the name of another one, which is alive
};

inline constexpr int kMaxOps = 5;
inline constexpr int kMaxClients = 3;
inline constexpr int kMaxExtents = 3;
inline constexpr int kMaxMessages = 8;
inline constexpr int kOwners = 2;
inline constexpr int kKeys = 2;

// What a Master that restarts does with the bytes that lie at the owners.
enum class Restart : uint8_t {
  kCold,   // nothing: every old key is a miss
  kGuess,  // adopts complete records by the rules "marked before unmarked, then highest version";
           // its journal keeps removals and superseded versions
  kOutbox  // adopts what is marked, whatever its version; its journal keeps every mark and free
           // that no owner confirmed
};

struct ObjectScenario {
  std::vector<Op> ops;                  // each client does its own in this order
  std::vector<uint8_t> owner_of{0, 1};  // one extent each
  uint16_t faults = 0;                  // kinds that may happen
  uint8_t fault_budget = 0;             // how many in all
  Restart restart = Restart::kCold;
  ObjectMutant mutant = ObjectMutant::kNone;
};

enum class MessageType : uint8_t {
  kNone,
  kGrant,
  kData,
  kPublish,
  kLocate,
  kRead,
  kRemove,
  kMount,
  kReply
};

enum class Code : uint8_t {
  kOk,
  kExists,  // put: somebody else's object is there
  kNotFound,
  kNoSpace,
  kRefused,  // the grant, the mount or the generation is old
  kWrongEpoch
};

// A request keeps its place in the list while an owner works on it: `stage` counts the steps done.
// Replies carry what they answer in the same fields.
struct Message {
  MessageType type;
  uint8_t op;       // index into the scenario's ops; kMount: the owner
  uint8_t attempt;  // request number within the call
  uint8_t epoch;
  uint8_t extent;
  uint8_t version;  // kMount: the incarnation that had the name when the Master asked
  uint8_t incarnation;
  uint8_t stage;  // of a reply: the type of its request
  Code code;
  std::array<uint8_t, 2> bytes;  // read so far

  auto operator<=>(const Message&) const = default;
};

enum class RecordState : uint8_t {
  kNone,
  kGranted,
  kPublished,
  kGone,  // published, and since then removed, superseded, evicted or lost with its owner
  kEnded  // never published; or a remove that was applied
};

// What the Master knows of one operation. Real code keeps it per (client, sequence).
struct Record {
  RecordState state;
  uint8_t extent;
  uint8_t version;
  uint8_t incarnation;
};

struct Master {
  uint8_t epoch;
  uint8_t sequence;
  uint8_t free_extents;                      // bit per extent
  uint8_t late_removes;                      // kRemoveAnsweredFirst: bit per operation
  uint8_t rebuilding;                        // warm: some owner has not announced its records yet
  std::array<uint8_t, kOwners> incarnation;  // mounted; 0: none
  std::array<uint8_t, kKeys> directory;      // operation + 1 that wrote what is published; 0: none
  std::array<Record, kMaxOps> record;
};

struct Owner {
  uint8_t incarnation;
  uint8_t epoch;  // of the Master that this incarnation was announced to; 0: none yet
};

struct Extent {
  uint8_t word;                  // version << 1 | being written
  std::array<uint8_t, 2> cells;  // operation + 1 that wrote them
  // Warm restart only: the record that came with the data (operation + 1; 0 once freed), and
  // whether the Master's publish mark has come.
  uint8_t record;
  uint8_t marked;
};

enum class Phase : uint8_t { kIdle, kGrant, kData, kPublish, kLocate, kRead, kRemove, kDead };

struct Client {
  Phase phase;
  uint8_t op;  // current, or the next one's lower bound
  uint8_t attempt;
  uint8_t timeouts_left;
  uint8_t epoch;
  uint8_t extent;
  uint8_t version;
  uint8_t incarnation;
  uint8_t asked_again;
  // For the checks on a get only.
  uint8_t must_hit;   // 0: may miss, else 1 + how often the object may still be superseded
  uint8_t forbidden;  // operations whose bytes were gone for good before the get began
};

enum class Outcome : uint8_t { kOpen, kOk, kExists, kMiss, kFailed, kUnknown };

enum class ObjectAlarm : uint8_t {
  kNone,
  kMixedBytes,
  kOtherKeysBytes,
  kUnpublishedBytes,
  kStaleBytes,
  kAcknowledgedPutMissing,
  kSecondOutcome,
  kRemoveAppliedTwice,
  kNetworkFull
};

struct ObjectState {
  Master master;
  std::array<Owner, kOwners> owners;
  std::array<Extent, kMaxExtents> extents;
  std::array<Client, kMaxClients> clients;
  std::array<Message, kMaxMessages> network;  // sorted, the empty ones last
  uint8_t faults_left;
  // The Master's journal, which survives its restart: operations whose publish or free no owner has
  // confirmed.
  uint8_t journal_published;
  uint8_t journal_gone;
  // What the checks remember; the protocol does not know it.
  std::array<Outcome, kMaxOps> outcome;
  std::array<uint8_t, kMaxOps>
      victims;              // operations whose bytes are gone once this one is answered
  uint8_t published;        // operations whose publish was applied at some time
  uint8_t gone;             // operations whose bytes no new get may return
  uint8_t must_have;        // keys that a new get must find
  uint8_t unsettled;        // keys with a remove of unknown outcome
  uint8_t removes_applied;  // operations, in this life of the Master
  ObjectAlarm alarm;
};

class ObjectModel {
 public:
  using State = ObjectState;

  explicit ObjectModel(const ObjectScenario& scenario) : scenario_(scenario) {}

  State initial() const;
  void steps(const State& state, Steps<State>& out) const;
  const char* broken(const State& state) const;
  bool settled(const State& state) const;
  std::string describe(const State& state) const;

 private:
  bool is(ObjectMutant mutant) const { return scenario_.mutant == mutant; }
  bool may(const State& state, Fault fault) const {
    return state.faults_left > 0 && (scenario_.faults & fault) != 0;
  }
  const Op& op(int index) const { return scenario_.ops[static_cast<size_t>(index)]; }
  int ops() const { return static_cast<int>(scenario_.ops.size()); }
  int extents() const { return static_cast<int>(scenario_.owner_of.size()); }
  int owner_of(int extent) const { return scenario_.owner_of[static_cast<size_t>(extent)]; }
  int clients() const;

  // object_model.cpp
  void send(State& next, const Message& message) const;
  void answer(State& next, const Message& request, Code code) const;
  void tidy(State& next) const;
  bool is_stale(const State& state, const Message& reply) const;
  void deliver_steps(const State& state, int index, Steps<State>& out) const;
  void fault_steps(const State& state, Steps<State>& out) const;
  void network_fault_steps(const State& state, Steps<State>& out) const;
  const char* broken_extent(const State& state, int extent) const;
  bool holds(const State& state, const Record& record) const;

  // object_master.cpp
  void grant_steps(const State& state, const Message& request, Steps<State>& out) const;
  void give(State& next, const Message& request, int extent) const;
  void publish(State& next, const Message& request) const;
  void apply_publish(State& next, int index) const;
  void remove(State& next, const Message& request) const;
  void apply_remove(State& next, int index) const;
  void locate(State& next, const Message& request) const;
  Label mount(State& next, Message request) const;
  void take_in(State& next, const Message& request) const;
  void disown(State& next, int owner) const;
  void master_steps(const State& state, Steps<State>& out) const;
  void drop_key(State& next, int key, bool evicted) const;
  void record_publish(State& next, int index) const;
  void free_extent(State& next, int extent) const;
  void restart_master(State& next) const;
  void forget_must(State& next, int key) const;

  // object_warm.cpp
  bool warm() const { return scenario_.restart != Restart::kCold; }
  void stream_steps(const State& state, Steps<State>& out) const;
  void announce(State& next, const Message& request) const;
  void adopt(State& next) const;
  int choose(const State& state, int key) const;
  int candidate(const State& state, int extent) const;
  void note_published(State& next, int index) const;
  void note_gone(State& next, int index, bool evicted) const;
  void restart_warm(State& next) const;

  // object_peers.cpp: owners and clients
  Label work_on_data(State& next, Message job) const;
  Label work_on_read(State& next, Message job) const;
  void owner_steps(const State& state, Steps<State>& out) const;
  void restart_owner(State& next, int owner) const;
  void client_steps(const State& state, int client, Steps<State>& out) const;
  void start(State& next, int client, int index) const;
  void ask(State& next, int client, Phase phase) const;
  void ask_again(State& next, int client) const;
  void time_out(State& next, int client) const;
  void receive(State& next, const Message& reply) const;
  void receive_for_get(State& next, int client, const Message& reply) const;
  void end(State& next, int client, Outcome outcome) const;
  void end_get(State& next, int client, const Message& reply) const;
  void acknowledge_write(State& next, int index) const;

  ObjectScenario scenario_;
};

}  // namespace mooncake::models
