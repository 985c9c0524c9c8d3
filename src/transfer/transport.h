// Transport: one way of moving bytes between this process and a peer's memory. Leaves live in
// transports/<name>/; the build generates the table of built-in ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/buffers.h"
#include "base/ids.h"
#include "base/metrics.h"
#include "base/task.h"
#include "memory/registry.h"
#include "mooncake/result.h"
#include "mooncake/transfer.h"
#include "net/address.h"
#include "net/handshake.h"
#include "net/rpc.h"
#include "os/cancel.h"
#include "os/env.h"
#include "transfer/peers.h"

namespace mooncake::transfer {

using base::Task;
using base::TimePoint;

enum class Reach : std::uint8_t { kProcess, kHost, kNetwork };
enum MemoryKinds : std::uint8_t { kHostMemory = 1, kDeviceMemory = 2 };

// What a transport can do, as data: the planner does arithmetic over it and knows no names.
struct Capabilities {
  std::string_view name;
  Reach reach = Reach::kNetwork;
  std::uint8_t local_kinds = kHostMemory;
  std::uint8_t remote_kinds = kHostMemory;
  double bandwidth_bytes_per_second = 0;  // expected, one stream; measured at start where cheap
  base::Duration latency{};               // of an empty transfer
  std::uint64_t alignment = 1;
  std::uint64_t max_bytes_per_request = 0;
  std::uint32_t max_ranges_per_request = 0;
  bool guarded_reads = false;              // can name generations
  bool guarded_writes = false;             // can name grants
  base::Duration guarded_write_latency{};  // beside `latency`
  std::uint32_t lanes = 1;  // connections to one peer, among which requests may choose
};

// An opened segment, as the planner sees it.
struct Peer {
  Peer() = default;  // no aggregate: see base/task.h
  std::string name;
  net::Address address;
  base::Incarnation incarnation{};  // 0 until known
  bool same_process = false;        // it is this very engine
  bool same_host = false;
};

// Bytes of one request entry, or a part of them. What it points to outlives the call.
struct Slice {
  Opcode opcode = Opcode::kRead;
  std::span<const base::MutableBuffer> local;  // scattered here; one after the other there
  std::uint64_t remote = 0;
  std::uint64_t length = 0;  // the sum of `local`
  memory::RegionKey key{};
  std::uint64_t guard = 0;                       // 0 = plain memory
  std::uint64_t extent = 0;                      // guarded memory: where the object's extent begins
  const memory::ExtentRecord* record = nullptr;  // guarded writes
  std::string_view record_key;
  Code code = Code::kOk;  // result, set by the transport
  std::string_view way;   // how it was moved, set by a transport that knows several; static text
};

inline bool is_plain_write(const Slice& slice) {
  return slice.guard == 0 && slice.opcode == Opcode::kWrite;
}
// Plain memory was taken back while it was being written: it may be another's by now, so that the
// write must not be tried again under a new key.
inline bool was_taken_back(const Slice& slice) {
  return slice.guard == 0 && slice.code == Code::kGenerationMismatch;
}

// Bytes of a peer, where they lie. They stay as they are for as long as `hold` lives; to let go of
// it is safe on any thread, also after the engine has ended.
struct PinnedBytes {
  PinnedBytes() = default;  // no aggregate: see base/task.h
  PinnedBytes(std::span<const std::byte> bytes_, std::shared_ptr<void> hold_)
      : bytes(bytes_), hold(std::move(hold_)) {}
  std::span<const std::byte> bytes;
  std::shared_ptr<void> hold;
};

struct AttemptId {
  base::Incarnation engine{};
  std::uint64_t batch = 0;
  std::uint32_t slice = 0;
  std::uint32_t attempt = 0;
  std::uint64_t oldest_open_batch = 0;
};

// Copies on the thread that calls, without the executor: between processes of one host, while the
// peer lives and its memory is known. Thread-safe.
class DirectPath {
 public:
  virtual ~DirectPath() = default;
  // Moves what it can of the slices whose code is kNotReady, and sets their codes and ways; what it
  // can't stays kNotReady, for the executor's way. On return nothing of the call is in flight.
  virtual void copy(std::span<Slice> slices, TimePoint deadline) = 0;
  // Its peer has gone for good: it will copy nothing any more. Any thread.
  virtual bool has_ended() const { return false; }
};

// Executor thread only.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const Capabilities& capabilities() const = 0;
  // True when this peer can be reached this way; else `why` says what is missing.
  virtual bool reaches(const Peer& peer, std::string& why) const = 0;

  // Moves slices of one opcode, within the limits of capabilities(). Sets each slice's code; an
  // error of the whole attempt (peer gone, deadline) is returned and leaves the codes of slices
  // that did succeed at kOk, all others set. On return no local byte is touched any more. Ends by
  // `deadline`, or soon after a cancel. `lane` is below capabilities().lanes.
  virtual Task<Result<void>> execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                                     std::span<Slice> slices, TimePoint deadline,
                                     os::CancelToken* cancel) = 0;

  // Returns when no byte of the attempts up to `id.attempt` of this batch and slice can land in the
  // peer's memory any more. An error means that this is not known: the bytes stay quarantined.
  virtual Task<Result<void>> fence(const Peer& peer, AttemptId id, TimePoint deadline,
                                   os::CancelToken* cancel) = 0;

  // Whether a write of plain memory that has failed may still land where one of these slices would
  // be written, by whatever transport: it would overtake it.
  virtual bool may_still_land(const Peer&, std::span<const Slice>) const { return false; }

  // Shows the bytes of a guarded slice without a copy, `slice.local` aside. kNotSupported where
  // they can't be seen from here; else as reads fail, and kBusy when too many are pinned.
  virtual Task<Result<PinnedBytes>> pin(const Peer&, AttemptId, const Slice&, TimePoint) {
    co_return fail(Code::kNotSupported);
  }

  // True when this life of the peer has most likely ended: who it is should be asked anew.
  virtual bool has_ended(const Peer&) const { return false; }

  // The peer is said to be well: what has failed with it may be tried at once.
  virtual void forget_failures(const Peer&) {}

  // A way to this peer that needs no executor, once there is one.
  virtual std::shared_ptr<DirectPath> direct(const Peer&) { return nullptr; }

  // Ends connections and tasks. Await it before destruction.
  virtual Task<void> stop() = 0;
};

// What transports count on behalf of the engine. Executor thread; read from any.
struct TransportCounters {
  base::Counter refused_ranges;   // accesses of peers that named what they may not touch
  base::Counter fenced_attempts;  // of peers, that were under way when they were fenced
};

class CopyCrew;

// What the engine lends its transports.
struct TransportContext {
  os::Env env;
  const net::Identity& identity;
  memory::Registry& registry;
  net::RpcServer& server;  // to serve peers of the same transport
  PeerClients& peers;      // connections to other engines
  TransportCounters& counters;
  std::uint32_t lanes;  // connections for data to one peer, for those that have such
  bool serves;          // peers may connect to this engine
  CopyCrew& crew;
  std::shared_ptr<base::Budget> budget;
  std::function<void()> direct_path_ended;  // to be told of one, on the executor's thread
};

// One row of the built-in table.
struct TransportEntry {
  std::string_view name;
  std::unique_ptr<Transport> (*create)(const TransportContext& context);
};
std::span<const TransportEntry> builtin_transports();

}  // namespace mooncake::transfer
