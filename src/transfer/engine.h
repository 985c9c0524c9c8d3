// Engine: the one transfer engine, in Tasks. The blocking API (include/mooncake/transfer.h) and the
// store are its users.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/metrics.h"
#include "memory/pool.h"
#include "memory/registry.h"
#include "net/handshake.h"
#include "net/rpc.h"
#include "os/env.h"
#include "transfer/lookup.h"
#include "transfer/selection/slice_scheduler.h"
#include "transfer/transport.h"

namespace mooncake::transfer {

struct EngineOptions {
  EngineOptions() = default;  // no aggregate: see base/task.h
  net::Identity identity;     // incarnation not 0; the name is filled in from the bound address
  net::Address listen;        // port 0 = a free one; no host = nothing listens
  std::unique_ptr<SegmentLookup> lookup;  // P2P when null
  // How often, about, the lookup is asked whether it still has this engine's name; 0 = never.
  base::Duration republish_interval = std::chrono::seconds(5);
  net::RpcLimits limits;
  // Of each part of a batch. A way that can't do it is not counted while others are untried.
  std::uint32_t max_attempts = 3;
  std::uint32_t lanes = 2;              // connections for data to one peer
  SliceScheduler::Rules scheduling;     // how requests are spread over them
  std::vector<std::string> transports;  // names of those to use; empty = all
  std::uint64_t memory_budget = 0;  // bytes for pools and what peers make it take; 0 = unlimited
  unsigned copy_helpers = 0;        // threads that help with large copies, at most
  bool plain_within_host = false;   // memory that is not guarded moves within this host only
};

// One entry of a batch.
struct EngineRequest {
  Slice slice;  // without key: the engine fetches it, unless it is given here
  SegmentHandle target{};
  Priority priority = Priority::kNormal;
  bool key_given = false;
};

class Engine {
 public:
  // Binds and serves. kAddressInUse names the address.
  static Task<Result<std::unique_ptr<Engine>>> start(os::Env env, EngineOptions options);
  virtual ~Engine() = default;
  // Ends all transfers, connections and serving. Await it before destruction.
  virtual Task<void> stop() = 0;

  virtual os::Env env() = 0;
  virtual const net::Identity& identity() const = 0;
  virtual const std::string& name() const = 0;
  virtual const net::Address& address() const = 0;
  virtual memory::Registry& registry() = 0;
  // Whether it may speak with processes of this host by other means than TCP.
  virtual bool shares_memory() const = 0;

  virtual Result<memory::Region> register_memory(std::uint64_t base, std::uint64_t length,
                                                 std::string_view location,
                                                 std::shared_ptr<memory::ExtentTable> extents) = 0;
  // Takes back the youngest registration that begins at `base`. When it returns no access that it
  // admitted touches the range any more; kBusy when that is not so by the deadline: then the range
  // is in quarantine and must stay alive until the copier has gone, which the same call waits for
  // when it is made again.
  virtual Task<Result<void>> unregister_memory(std::uint64_t base, TimePoint deadline) = 0;
  // Any thread: the same for a registration that has been removed from registry() already.
  virtual Task<Result<void>> finish_unregister(memory::Registry::Removed removed,
                                               TimePoint deadline) = 0;
  // Waits for the end of the youngest quarantine that begins at `base`: kBusy when that does not
  // come in time, kAddressNotRegistered when there is none.
  virtual Task<Result<void>> leave_quarantine(std::uint64_t base, TimePoint deadline) = 0;

  // By name through the lookup, which also connects: kSegmentNotFound, kUnreachable. Or by address
  // (a segment that the store's Master names), which connects when first used. The same name gives
  // the same handle.
  // Soon after a cancel: kCancelled, of these calls as of all others that take one.
  virtual Task<Result<SegmentHandle>> open_segment(std::string name, TimePoint deadline,
                                                   os::CancelToken* cancel = nullptr) = 0;
  virtual SegmentHandle open_address(const std::string& name, const net::Address& address) = 0;
  // The same by name, without a look-up when it was opened before.
  virtual Task<Result<SegmentHandle>> known_segment(std::string name, TimePoint deadline,
                                                    os::CancelToken* cancel = nullptr) = 0;

  // Moves the batch: plans, slices, executes, retries a failed attempt on another path or
  // connection, after the older attempt is fenced if it was a write. An attempt that takes much
  // longer than its lane lets expect is called off, fenced, and repeated on another lane. Sets each
  // request's slice.code. Ends by `deadline`; on return no local byte is touched any more. `moved`,
  // if given, is raised by the bytes that each transport moved. A write that failed may leave a
  // part of its bytes, or zeros, at its target. A cancel ends it soon, what is not moved by then
  // with kCancelled: it waits for a fence of what was being written, but not long.
  virtual Task<void> transfer(std::span<EngineRequest> requests, TimePoint deadline,
                              std::map<std::string, std::uint64_t>* moved = nullptr,
                              os::CancelToken* cancel = nullptr) = 0;

  // Shows the bytes of one guarded read, whose key is given, where they lie, without a copy.
  // kNotSupported where they can't be seen from this process; else as the read would fail, and
  // kBusy when too many are pinned.
  virtual Task<Result<PinnedBytes>> pin(SegmentHandle target, Slice slice, TimePoint deadline) = 0;

  // Puts it into the inbox of the segment's engine. kBusy when that is full, kInvalidArgument when
  // it is too long (inbox.h). One that ends with another error may have arrived.
  virtual Task<Result<void>> notify(SegmentHandle target, Notification notification,
                                    TimePoint deadline, os::CancelToken* cancel = nullptr) = 0;
  // The same for a segment that may have to be opened first.
  virtual Task<Result<void>> notify_by_name(std::string name, Notification notification,
                                            TimePoint deadline,
                                            os::CancelToken* cancel = nullptr) = 0;
  // What has arrived since the last time, in order. Any thread.
  virtual std::vector<Notification> take_notifications() = 0;

  // Asks the segment's engine for a sign of life. Looks the name up anew and forgets what has
  // failed with this peer, so that all ways to it may be tried again at once. kUnreachable and so
  // on.
  virtual Task<Result<void>> probe(std::string name, TimePoint deadline,
                                   os::CancelToken* cancel = nullptr) = 0;
  // Where the segment's oldest plain registration begins; kAddressNotRegistered when it has none.
  virtual Task<Result<std::uint64_t>> first_buffer(std::string name, TimePoint deadline,
                                                   os::CancelToken* cancel = nullptr) = 0;

  // The way to this segment that needs no executor; null while there is none. Any thread.
  virtual std::shared_ptr<DirectPath> direct(SegmentHandle target) = 0;

  // Which transports reach this segment, best first, with the reason; for the doctor and the
  // benches.
  struct PathChoice {
    std::string_view transport;
    bool usable = false;
    double score = 0;  // seconds that a typical transfer is expected to take
    std::string reason;
  };
  virtual std::vector<PathChoice> paths(SegmentHandle target) = 0;

  // Bytes moved by path, both directions, since start. What was moved by direct() is added by who
  // did it. Any thread.
  virtual std::map<std::string, std::uint64_t> bytes_by_path() const = 0;
  virtual void add_moved(std::string_view path, std::uint64_t bytes) = 0;

  struct Counters {
    std::uint64_t refused_ranges;  // accesses of peers that named what they may not touch
    std::uint64_t fenced_attempts, retried_attempts, quarantined_bytes;
    std::uint64_t stuck_attempts;  // called off, since their lane seemed to stand still
    std::uint64_t helped_copies;   // large ones that two threads have made together
    net::RpcServer::Counters server;
  };
  virtual Counters counters() const = 0;
  // Of all memory that this engine gives to others, some of which may outlive it.
  virtual std::shared_ptr<base::Budget> budget() = 0;
  // Rows of this engine, and of who lives on it. Expose on the executor's thread.
  virtual base::MetricsRegistry& metrics() = 0;
};

}  // namespace mooncake::transfer
