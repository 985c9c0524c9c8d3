// Client: one participant of the store, in Tasks. Gives its segment, keeps itself mounted, and does
// batched puts and gets. The blocking API (include/mooncake/store.h) is its facade.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "base/task.h"
#include "memory/extent_table.h"
#include "memory/pool.h"
#include "mooncake/store.h"
#include "net/rpc.h"
#include "os/env.h"
#include "store/types.h"
#include "transfer/engine.h"

namespace mooncake::store {

using base::Task;
using base::TimePoint;

struct ClientOptions {
  ClientOptions() = default;                    // no aggregate: see base/task.h
  net::RpcClient::Connector connect_to_master;  // sockets, or an in-process pair
  std::string master_name;                      // for messages
  net::Identity identity;
  // Who this client is to the Master, which takes whoever knows it at its word: a secret of the
  // two. 0: drawn from the environment's random numbers, which others could foretell.
  ClientId id{};
  std::string host;  // for placement
  std::uint64_t segment_size = 0;
  memory::Preparer* preparer = nullptr;  // null: the pool is prepared on the spot
  std::shared_ptr<base::Budget> budget;
  // A Master that restarts or forgets us is mounted again at this pace.
  base::Duration remount_interval = std::chrono::milliseconds(200);
  std::uint32_t grant_retry_ms = 5;  // while the pool's memory is being prepared
  // Called before the client mounts; from then on it may be interrupted.
  std::function<void(class Client&)> on_created;
};

// Per item: a code of codes.def; sizes where asked.
struct GetOutcome {
  Code code = Code::kOk;
  std::uint64_t size = 0;
  bool answered = false;  // the Master was asked, and knew; else `code` says why not
};

// Where an object lies, for those who ask.
struct Located {
  Code code = Code::kOk;
  std::uint64_t size = 0;
  std::vector<ReplicaDescriptor> replicas;
};

// What a put or upsert may ask for.
struct PutOptions {
  PutOptions() = default;  // no aggregate: see base/task.h
  ReplicateConfig config;
  bool upsert = false;
};
struct PutOutcome {
  PutOutcome() = default;
  std::vector<Code> codes;  // one for each item
  // What the first item without space lacked, stood in its way (readers' pins, a dead owner), is
  // wrong with the config, or kept the Master from answering.
  std::string why;
};

// kInvalidArgument names what contradicts itself in the config of a call for `items` objects.
Result<void> check_config(const ReplicateConfig& config, std::size_t items);

class Client {
 public:
  // Mounts before it returns; kUnreachable or kDeadlineExceeded name the Master.
  static Task<Result<std::unique_ptr<Client>>> start(os::Env env, transfer::Engine& engine,
                                                     ClientOptions options, TimePoint deadline);
  virtual ~Client() = default;
  // Unmounts if the Master answers within `deadline`, then ends everything. Await it before
  // destruction.
  virtual Task<void> stop(TimePoint deadline) = 0;

  // Existing keys give kObjectExists (which the published API turns into success), unless it is an
  // upsert.
  virtual Task<PutOutcome> put(std::span<const PutItem> items, PutOptions options,
                               TimePoint deadline) = 0;
  // Reads each object into its item's parts. kInvalidArgument when they are too small.
  virtual Task<std::vector<GetOutcome>> get(std::span<const GetItem> items, TimePoint deadline) = 0;
  // `allocate` is called for each found object with its index and size, and gives its place; again
  // when a retry finds another version, after which the earlier place is touched no more.
  using Allocate = std::function<std::span<std::byte>(std::size_t index, std::uint64_t size)>;
  virtual Task<std::vector<GetOutcome>> get(std::span<const std::string_view> keys,
                                            Allocate allocate, TimePoint deadline) = 0;
  // Shows the object where it lies, without a copy: kNotSupported unless that is memory of this
  // host which this process can see. What is pinned stays as it is, also when it is removed,
  // replaced or evicted meanwhile; while it is pinned its key's lease is renewed.
  virtual Task<Result<transfer::PinnedBytes>> pin(std::string_view key, TimePoint deadline) = 0;
  // kOk, kObjectNotFound, or why it is not known.
  virtual Task<std::vector<Code>> exist(std::span<const std::string_view> keys,
                                        TimePoint deadline) = 0;
  virtual Task<std::vector<Located>> locate_all(std::span<const std::string_view> keys,
                                                TimePoint deadline) = 0;
  virtual Task<std::vector<Code>> remove(std::span<const std::string_view> keys, bool force,
                                         TimePoint deadline) = 0;
  // All objects whose keys match `pattern` (empty = all), step by step; each step is answered
  // within `step_timeout`. Gives their number; an error says how many had gone before it.
  virtual Task<Result<std::uint64_t>> remove_matching(std::string pattern, bool force,
                                                      base::Duration step_timeout) = 0;

  // What became of each key, at most `most_events` events of each. Takes no lease. kInvalidArgument
  // when one is no key.
  virtual Task<Result<std::vector<KeyReport>>> why(std::span<const std::string_view> keys,
                                                   std::size_t most_events, TimePoint deadline) = 0;

  // The segment that this client gives gets nothing new, stays readable for `grace`, and is given
  // back then; the client goes on without. kSegmentNotFound when it gives none.
  virtual Task<Result<void>> unmount_segment(base::Duration grace, TimePoint deadline) = 0;

  // Calls under way that wait for the Master end with kCancelled, mounting included; the client
  // goes on. A transfer of data ends by its deadline.
  virtual void interrupt() = 0;

  virtual bool mounted() const = 0;
  // Mounted, and the Master has answered the last heartbeat.
  virtual bool healthy() const = 0;
  virtual base::MetricsRegistry& metrics() = 0;
  // For simulation: this client's own segment, null when it gives none.
  virtual const memory::ExtentTable* extents() const = 0;
};

}  // namespace mooncake::store
