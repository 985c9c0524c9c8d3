// EngineImpl: the engine's state. engine.cpp starts, stops and knows segments; batch.cpp moves
// batches, pin.cpp shows bytes where they lie.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "os/event.h"
#include "os/executor.h"
#include "transfer/copy_crew.h"
#include "transfer/describe.h"
#include "transfer/engine.h"
#include "transfer/inbox.h"
#include "transfer/key_cache.h"
#include "transfer/lanes.h"
#include "transfer/selection/planner.h"

namespace mooncake::transfer {

struct Segment {
  Peer peer;
  SegmentHandle handle{};
  KeyCache keys;
  bool found_by_name = false;  // through the lookup, which may know better after a failure
  std::map<std::size_t, std::unique_ptr<Lanes>> lanes;  // by transport
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(os::Env env, EngineOptions options);
  ~EngineImpl() override;

  Task<Result<void>> open();
  Task<void> stop() override;

  os::Env env() override { return env_; }
  const net::Identity& identity() const override { return identity_; }
  const std::string& name() const override { return identity_.name; }
  const net::Address& address() const override { return address_; }
  memory::Registry& registry() override { return registry_; }
  bool shares_memory() const override {
    return allowed_.empty() || std::ranges::any_of(allowed_, [](const std::string& transport) {
             return transport == "shm" || transport == "ring";
           });
  }

  Result<memory::Region> register_memory(std::uint64_t base, std::uint64_t length,
                                         std::string_view location,
                                         std::shared_ptr<memory::ExtentTable> extents) override;
  Task<Result<void>> unregister_memory(std::uint64_t base, TimePoint deadline) override;
  Task<Result<void>> finish_unregister(memory::Registry::Removed removed,
                                       TimePoint deadline) override;
  Task<Result<void>> leave_quarantine(std::uint64_t base, TimePoint deadline) override;
  Task<Result<SegmentHandle>> open_segment(std::string name, TimePoint deadline,
                                           os::CancelToken* cancel) override;
  SegmentHandle open_address(const std::string& name, const net::Address& address) override;
  Task<Result<SegmentHandle>> known_segment(std::string name, TimePoint deadline,
                                            os::CancelToken* cancel) override;
  Task<void> transfer(std::span<EngineRequest> requests, TimePoint deadline,
                      std::map<std::string, std::uint64_t>* moved,
                      os::CancelToken* cancel) override;
  Task<Result<PinnedBytes>> pin(SegmentHandle target, Slice slice, TimePoint deadline) override;
  Task<Result<void>> notify(SegmentHandle target, Notification notification, TimePoint deadline,
                            os::CancelToken* cancel) override;
  Task<Result<void>> notify_by_name(std::string name, Notification notification, TimePoint deadline,
                                    os::CancelToken* cancel) override;
  std::vector<Notification> take_notifications() override { return inbox_.take_all(); }
  Task<Result<void>> probe(std::string name, TimePoint deadline, os::CancelToken* cancel) override;
  Task<Result<std::uint64_t>> first_buffer(std::string name, TimePoint deadline,
                                           os::CancelToken* cancel) override;
  std::shared_ptr<DirectPath> direct(SegmentHandle target) override;
  std::vector<PathChoice> paths(SegmentHandle target) override;
  std::map<std::string, std::uint64_t> bytes_by_path() const override;
  void add_moved(std::string_view path, std::uint64_t bytes) override;
  Counters counters() const override;
  std::shared_ptr<base::Budget> budget() override { return budget_; }
  base::MetricsRegistry& metrics() override { return metrics_; }

 private:
  friend class BatchRun;  // batch.cpp: one batch under way

  // Publishes the name anew when the lookup has lost it, until the engine stops.
  Task<void> keep_published();
  Task<Result<SegmentLookup::Standing>> renew_publication();

  void add_metrics();
  void add_server_metrics();

  Segment* find_segment(SegmentHandle handle);
  SegmentHandle handle_of(const std::string& name, const net::Address& address, bool found_by_name);
  std::vector<Candidate> candidates_for(const Peer& peer, bool guarded,
                                        std::vector<std::string>* reasons) const;

  // Asks the peer who it is, and to describe these ranges (at most kMaxDescribed). Another life of
  // the peer than the one known makes what was known of it void.
  Task<Result<net::Bytes>> ask(Segment& segment, std::vector<AskedRange> ranges, TimePoint deadline,
                               os::CancelToken* cancel = nullptr);
  Task<Result<net::Bytes>> ask_once(Segment& segment, const net::Bytes& body, TimePoint deadline,
                                    os::CancelToken* cancel);
  // The same, for the keys of the ranges.
  Task<Result<std::vector<DescribedRegion>>> describe(Segment& segment,
                                                      std::vector<AskedRange> ranges,
                                                      TimePoint deadline,
                                                      os::CancelToken* cancel = nullptr);
  bool has_ended(const Peer& peer) const;
  // Null for a transport without several lanes.
  Lanes* lanes_of(Segment& segment, std::size_t transport);
  // Until no failed write can land any more where these do. False when it is over before.
  Task<bool> wait_for_left_writes(const Peer& peer, std::span<const Slice> slices,
                                  TimePoint deadline, os::CancelToken* cancel);
  // Remembers the direct path of the best transport, if it has one.
  void note_direct(const Segment& segment, std::size_t transport);
  void drop_ended_paths();
  // After a failure: the name may lead elsewhere by now. A cancel leaves the look-up behind.
  Task<void> find_again(Segment& segment, TimePoint deadline, os::CancelToken* cancel = nullptr);
  // A look-up that ends with the engine, and soon after a cancel.
  Task<Result<net::Address>> find_address(std::string name, TimePoint deadline,
                                          os::CancelToken* cancel);
  using Found = std::shared_ptr<os::Completion<bool>>;
  Task<void> look_up(std::string name, TimePoint deadline, Found found);
  // Goes on until the fence is known to hold, or for kQuarantineTime; counts the bytes meanwhile.
  void quarantine(Transport& transport, Peer peer, AttemptId id, std::uint64_t bytes);
  // Waits for copiers of other processes, then lets the registration's pass go.
  Task<bool> wait_until_clear(memory::Registry::Removed& removed, TimePoint deadline);
  Task<void> clear_behind(memory::Registry::Removed removed);
  Task<void> fence_behind(Transport& transport, Peer peer, AttemptId id, std::uint64_t bytes);
  // Tries one transport after the other.
  Task<Result<PinnedBytes>> pin_by_any(Segment& segment, AttemptId id, const Slice& slice,
                                       TimePoint deadline);
  Task<Result<PinnedBytes>> pin_in(Peer peer, AttemptId id, const Slice& slice, TimePoint deadline);
  std::uint64_t open_batch();
  void close_batch(std::uint64_t id);
  std::uint64_t oldest_open_batch() const {
    return open_batches_.empty() ? next_batch_ : *open_batches_.begin();
  }

  const os::Env env_;
  net::Identity identity_;
  net::Address address_;
  const net::Address listen_;
  const std::uint32_t max_attempts_;
  const std::uint32_t lanes_;
  const SliceScheduler::Rules scheduling_;
  const std::vector<std::string> allowed_;  // transports; empty = all
  const bool plain_within_host_;
  std::unique_ptr<SegmentLookup> lookup_;
  os::CancelToken look_ups_;  // of all that are under way; the end of the engine is theirs
  const base::Duration republish_interval_;
  bool published_ = false;
  base::TaskGroup keeper_;  // of the name

  const std::shared_ptr<base::Budget> budget_;
  memory::Registry registry_;
  Inbox inbox_;
  TransportCounters transport_counters_;
  CopyCrew crew_;  // goes after the transports, and so after their copies
  std::unique_ptr<net::RpcServer> server_;
  std::unique_ptr<PeerClients> peers_;
  std::vector<std::unique_ptr<Transport>> transports_;

  std::vector<std::unique_ptr<Segment>> segments_;  // by handle; 0 is this engine's own
  std::map<std::string, SegmentHandle> handles_;

  mutable std::mutex mutex_;                         // guards the next two
  std::vector<std::shared_ptr<DirectPath>> direct_;  // by handle
  std::map<std::string, std::uint64_t, std::less<>> bytes_by_path_;

  // Of memory that was taken back while another process was copying there.
  struct Quarantine {
    explicit Quarantine(os::Executor& executor) : over(executor) {}
    os::Event over;
    std::uint64_t length = 0;
    bool clear = false;
  };
  std::map<std::uint64_t, std::shared_ptr<Quarantine>> quarantines_;  // by address

  // Questions that are under way, and whether they have been heard here: then we have asked us.
  std::map<std::uint64_t, bool> questions_;

  bool stopping_ = false;
  std::uint64_t next_batch_ = 1;
  std::set<std::uint64_t> open_batches_;
  os::Completion<bool>* all_closed_ = nullptr;  // set when the last open batch ends
  base::TaskGroup behind_;  // fences, quarantines and look-ups whose callers may have returned
  base::MetricsRegistry metrics_;
  std::uint64_t retried_attempts_ = 0;
  std::uint64_t stuck_attempts_ = 0;
  std::uint64_t quarantined_bytes_ = 0;
};

}  // namespace mooncake::transfer
