// MasterServer: the core behind RPC, with its clock, its metrics and its epoch on disk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "base/task.h"
#include "net/rpc.h"
#include "os/env.h"
#include "store/master/core.h"

namespace mooncake::store::master {

using base::Task;

struct ServerOptions {
  net::Identity identity;
  net::RpcLimits limits;
  CoreOptions core;  // epoch and hash_seed are filled in
  base::Duration tick = std::chrono::milliseconds(50);
  // What clients are asked for; at most a quarter of core.client_ttl, so that one that is lost does
  // not cost a client its place.
  base::Duration heartbeat = std::chrono::seconds(1);
  // File that keeps the highest epoch that may have been used, so that it rises over restarts
  // within a second and clocks that step back. Empty: the epoch is taken from the wall clock alone,
  // and rises above what mounting clients have seen.
  std::string epoch_file;
  // A line of summary() in the log at this distance; 0 = none.
  base::Duration report_every{};
  // Told of everything that the core decides, as it decides it; for checkers. May be empty.
  std::function<void(const Decision&)> on_decision;
};

// Executor thread only.
class MasterServer {
 public:
  // Stores its epoch before it serves.
  static Result<std::unique_ptr<MasterServer>> create(os::Env env, ServerOptions options);
  virtual ~MasterServer() = default;

  virtual Result<net::Address> listen(const net::Address& at) = 0;
  // One in-process connection; for embedded mode.
  virtual void serve(std::unique_ptr<net::Channel> channel) = 0;
  virtual Task<void> stop() = 0;

  // Removes the objects whose keys match (key_pattern.h; empty = all), in steps between which
  // others are served; leased ones stay unless it is forced. Gives their number. kInvalidArgument
  // names the pattern's fault. For whoever operates this Master; clients do it step by step.
  virtual Task<Result<std::uint64_t>> remove_matching(std::string pattern, bool force) = 0;

  // One object as readers find it, and its lease as they take it, or none; kObjectNotFound.
  enum class Lease : bool { kNone, kTaken };
  virtual Effect find(std::string_view key, Lease lease) = 0;
  // One turn of the executor, for whoever goes through much.
  virtual Task<void> yield() = 0;
  // One line for people: objects, memory, clients, evictions.
  virtual std::string summary() const = 0;

  // What became of a key, in facts and in words; at most kMaxWhyEvents events. Takes no lease.
  virtual KeyReport why(std::string_view key, std::size_t most_events) const = 0;

  virtual const Core& core() const = 0;
  // What to show of a client to others.
  virtual std::uint64_t name_of(ClientId client) const = 0;
  virtual net::RpcServer::Counters rpc_counters() const = 0;
  // Names as in the published metrics (spec section 15), plus our own.
  virtual base::MetricsRegistry& metrics() = 0;
};

}  // namespace mooncake::store::master
