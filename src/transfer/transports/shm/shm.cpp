// The shm transport: peers on this host. One copy, made by the process that asks, through a mapping
// of the peer's pool or by process_vm_*.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transfer/requests.h"
#include "transfer/transport.h"
#include "transfer/transports/shm/host_link.h"
#include "transfer/transports/shm/host_server.h"
#include "transfer/transports/shm/pin_returns.h"
#include "transfer/transports/this_host.h"

namespace mooncake::transfer {
namespace shm {
namespace {

constexpr base::Duration kOpenTime = std::chrono::seconds(2);
constexpr base::Duration kUnpinTime = std::chrono::seconds(2);
constexpr base::Duration kLook = std::chrono::milliseconds(1);  // whether a fence is there
constexpr base::Duration kTryAgainAfter = std::chrono::seconds(5);

constexpr Capabilities kCapabilities = [] {
  Capabilities capabilities;
  capabilities.name = kMapped;
  capabilities.reach = Reach::kHost;
  capabilities.bandwidth_bytes_per_second = 10e9;
  capabilities.latency = std::chrono::microseconds(1);
  capabilities.guarded_reads = capabilities.guarded_writes = true;
  capabilities.guarded_write_latency =
      std::chrono::microseconds(100);             // two questions to the owner
  capabilities.max_bytes_per_request = 8u << 20;  // one step of the executor
  capabilities.max_ranges_per_request = 1u << 14;
  return capabilities;
}();

bool is_left(const Slice& slice) { return slice.code == Code::kNotReady; }

Task<void> open_link(std::shared_ptr<HostLink> link, TimePoint deadline) {
  co_await link->open(deadline);
}

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const TransportContext& context)
      : context_(context),
        server_(context),
        mappings_(std::make_shared<MappingAccount>(context.budget)),
        returns_(PinReturns::create(context.env.executor, [this](const Peer& peer, AttemptId id) {
          tasks_.start(unpin(peer, id));
        })) {
    auto started = server_.start();
    if (!started) missing_ = started.error().message();
  }

  const Capabilities& capabilities() const override { return kCapabilities; }
  bool reaches(const Peer& peer, std::string& why) const override;
  Task<Result<void>> execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                             std::span<Slice> slices, TimePoint deadline,
                             os::CancelToken* cancel) override;
  // A copy ends with the call that makes it, but for those that need patience.
  Task<Result<void>> fence(const Peer& peer, AttemptId id, TimePoint deadline,
                           os::CancelToken* cancel) override;
  Task<Result<PinnedBytes>> pin(const Peer& peer, AttemptId id, const Slice& slice,
                                TimePoint deadline) override;
  bool may_still_land(const Peer& peer, std::span<const Slice> slices) const override;
  bool has_ended(const Peer& peer) const override;
  std::shared_ptr<DirectPath> direct(const Peer& peer) override;
  void forget_failures(const Peer& peer) override;
  Task<void> stop() override;

 private:
  std::shared_ptr<HostLink> link_to(const Peer& peer);
  static Task<Result<void>> copy(HostLink& link, AttemptId id, std::span<Slice> slices,
                                 TimePoint deadline, os::CancelToken* cancel);
  Task<Result<void>> write_guarded(HostLink& link, const Peer& peer, AttemptId id,
                                   std::span<Slice> slices, TimePoint deadline,
                                   os::CancelToken* cancel);
  Task<Result<void>> write_together(HostLink& link, const Peer& peer, AttemptId id,
                                    std::span<Slice> slices, TimePoint deadline,
                                    os::CancelToken* cancel);

  Task<Result<void>> ask_pin(const Peer& peer, AttemptId id, const Slice& slice,
                             TimePoint deadline);
  Task<void> unpin(Peer peer, AttemptId id);

  const TransportContext context_;
  HostServer server_;
  const std::shared_ptr<MappingAccount> mappings_;
  const std::shared_ptr<PatientThreads> threads_ = std::make_shared<PatientThreads>();
  const std::shared_ptr<PinReturns> returns_;
  std::string missing_;  // why nobody is reached; empty = nothing is missing
  std::map<base::Incarnation, std::shared_ptr<HostLink>> links_;
  base::TaskGroup tasks_;
  os::CancelToken unpins_;  // of all that are under way
  bool stopping_ = false;
};

bool ShmTransport::reaches(const Peer& peer, std::string& why) const {
  if (!is_neighbour(peer, why)) return false;
  const auto link = links_.find(peer.incarnation);
  if (!missing_.empty()) {
    why = missing_;
  } else if (link != links_.end() && link->second->has_failed() &&
             context_.env.now() < link->second->failed_at() + kTryAgainAfter) {
    why = link->second->failure().message();
  } else {
    return true;
  }
  return false;
}

// Links that have failed are forgotten after a while, and so tried again if their peer lives.
std::shared_ptr<HostLink> ShmTransport::link_to(const Peer& peer) {
  std::erase_if(links_, [now = context_.env.now()](const auto& link) {
    return link.second->has_failed() && now >= link.second->failed_at() + kTryAgainAfter &&
           link.second->patient().are_over();
  });
  std::shared_ptr<HostLink>& link = links_[peer.incarnation];
  if (!link) {
    link = std::make_shared<HostLink>(context_, mappings_, threads_, tasks_, peer);
    tasks_.start(open_link(link, context_.env.now() + kOpenTime));
  }
  return link;
}

// What can be moved of the slices is; they begin as kNotReady.
Task<Result<void>> ShmTransport::copy(HostLink& link, AttemptId id, std::span<Slice> slices,
                                      TimePoint deadline, os::CancelToken* cancel) {
  constexpr int kRounds = 2;  // the second for regions that were not known, or are others by now
  HostPeer::Trail trail;
  for (int round = 0; round < kRounds; ++round) {
    const std::shared_ptr<HostPeer> host = link.peer();
    if (!host) break;
    host->copy(slices, deadline, trail);
    if (host->needs_patience(slices)) {
      const PatientCopies::Call call{host, id, memory::Pass::kNone, deadline, cancel};
      MC_CO_CHECK(co_await link.patient().copy(call, slices, trail));
    }
    auto unknown = host->unknown(slices);
    if (unknown.empty()) break;
    if (round + 1 == kRounds) break;
    MC_CO_CHECK(co_await link.learn(std::move(unknown), deadline, cancel));
  }
  co_return Result<void>();
}

// The guarded writes among the slices, as many at a time as one message may name.
Task<Result<void>> ShmTransport::write_guarded(HostLink& link, const Peer& peer, AttemptId id,
                                               std::span<Slice> slices, TimePoint deadline,
                                               os::CancelToken* cancel) {
  std::vector<Slice> together;
  std::vector<Slice*> originals;
  Result<void> outcome;
  for (auto next = slices.begin(); outcome;) {
    together.clear();
    originals.clear();
    for (; next != slices.end() && together.size() < kMaxRequestRanges; ++next) {
      if (!is_guarded_write(*next)) continue;
      together.push_back(*next);
      originals.push_back(&*next);
    }
    if (together.empty()) break;
    outcome = co_await write_together(link, peer, id, together, deadline, cancel);
    for (std::size_t i = 0; i < together.size(); ++i) {
      originals[i]->code = together[i].code;
      originals[i]->way = together[i].way;
    }
  }
  co_return outcome;
}

// The owner begins them, we copy, the owner ends them.
Task<Result<void>> ShmTransport::write_together(HostLink& link, const Peer& peer, AttemptId id,
                                                std::span<Slice> slices, TimePoint deadline,
                                                os::CancelToken* cancel) {
  std::shared_ptr<HostPeer> host = link.peer();
  if (!host) co_return Result<void>();
  if (auto unknown = host->unknown(slices); !unknown.empty()) {
    MC_CO_CHECK(co_await link.learn(std::move(unknown), deadline, cancel));
    if (!host->unknown(slices).empty())
      co_return Result<void>();  // another way knows it, or nobody
  }
  net::RpcClient& owner = context_.peers.control(peer.address);
  net::CallOptions options;
  options.deadline = deadline;
  options.cancel = cancel;
  id.engine = host->guest();
  const net::Bytes question = encode_write(id, peer.incarnation, slices);
  const Result<net::Reply> begun = co_await owner.call(net::Method::kBeginWrite, question, options);
  if (!begun && begun.error().code() == Code::kNotSupported) co_return Result<void>();
  if (!begun) co_return fail(begun.error());
  MC_CO_TRY(const memory::Pass pass, apply_begun(begun->body, slices));
  for (Slice& slice : slices) {
    const bool there = slice.code == Code::kObjectExists;
    slice.code = there ? Code::kOk : slice.code == Code::kOk ? Code::kNotReady : slice.code;
  }
  if (pass == memory::Pass::kNone) co_return Result<void>();
  host->write_guarded(slices, pass, deadline);
  Result<void> waited;
  if (host->needs_patience(slices, pass)) {
    HostPeer::Trail none;  // of plain memory
    const PatientCopies::Call call{host, id, pass, deadline, cancel};
    waited = co_await link.patient().copy(call, slices, none);
  }
  std::vector<bool> arrived;
  for (Slice& slice : slices) {
    arrived.push_back(slice.code == Code::kOk);
    if (arrived.back()) slice.code = Code::kNotReady;  // until the owner has said so
  }
  MC_CO_CHECK(std::move(waited));
  const net::Bytes end = encode_end(id, peer.incarnation, arrived);
  std::vector<Slice> answered(slices.begin(), slices.end());
  MC_CO_TRY(const net::Reply ended, co_await owner.call(net::Method::kEndWrite, end, options));
  MC_CO_CHECK(apply_codes(ended.body, answered));
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (arrived[i]) slices[i].code = answered[i].code;
  }
  co_return Result<void>();
}

Task<Result<void>> ShmTransport::execute(const Peer& peer, AttemptId id, std::uint32_t,
                                         std::span<Slice> slices, TimePoint deadline,
                                         os::CancelToken* cancel) {
  for (Slice& slice : slices)
    slice.code = Code::kNotReady;
  Result<void> outcome;
  const std::shared_ptr<HostLink> link = stopping_ ? nullptr : link_to(peer);
  if (!link) {
    outcome = fail(Code::kCancelled);
  } else {
    const bool in_time = co_await link->opened().wait(deadline, cancel);
    if (!in_time) outcome = fail(why_left(cancel));
  }
  if (outcome && !std::ranges::all_of(slices, is_guarded_write)) {
    outcome = co_await copy(*link, id, slices, deadline, cancel);
  }
  if (outcome) outcome = co_await write_guarded(*link, peer, id, slices, deadline, cancel);
  // Another way would ask the same dead life of the peer.
  if (outcome && link->was_lost() && std::ranges::any_of(slices, is_left)) {
    outcome = fail(link->failure());
  }
  bool elsewhere = false;  // what this way can't do, another may
  for (Slice& slice : slices) {
    if (!is_left(slice)) continue;
    const auto host = link ? link->peer() : nullptr;
    slice.code = !outcome ? outcome.error().code()
                 : host   ? host->why_left(slice)
                          : Code::kTransferFailed;
    elsewhere |= slice.code == Code::kTransferFailed;
  }
  if (!outcome) co_return outcome;
  if (elsewhere) {
    co_return fail(Code::kTransferFailed, "not all of it lies in memory that can be reached so");
  }
  co_return Result<void>();
}

Task<Result<void>> ShmTransport::fence(const Peer& peer, AttemptId id, TimePoint deadline,
                                       os::CancelToken* cancel) {
  const auto found = links_.find(peer.incarnation);
  if (found == links_.end()) co_return Result<void>();
  const std::shared_ptr<HostLink> link = found->second;
  while (!link->patient().are_over(id)) {
    if (stopping_) co_return fail(Code::kCancelled);
    if (os::is_cancelled(cancel) || context_.env.now() >= deadline)
      co_return fail(why_left(cancel));
    co_await context_.env.executor.sleep_for(kLook);
  }
  co_return Result<void>();
}

// An attempt whose outcome is not known is ended at the owner.
Task<Result<void>> ShmTransport::ask_pin(const Peer& peer, AttemptId id, const Slice& slice,
                                         TimePoint deadline) {
  const net::Bytes question = encode_read(id, peer.incarnation, {&slice, 1});
  net::CallOptions options;
  options.deadline = deadline;
  const Result<net::Reply> reply =
      co_await context_.peers.control(peer.address).call(net::Method::kPin, question, options);
  if (!reply) {
    const Code code = reply.error().code();
    const bool unknown = code == Code::kDeadlineExceeded || code == Code::kConnectionLost;
    if (unknown && !stopping_) tasks_.start(unpin(peer, id));
    co_return fail(reply.error());
  }
  Slice answered = slice;
  MC_CO_CHECK(apply_codes(reply->body, {&answered, 1}));
  if (answered.code != Code::kOk) co_return fail(answered.code);
  co_return Result<void>();
}

Task<void> ShmTransport::unpin(Peer peer, AttemptId id) {
  const net::Bytes question = encode_fence(id, peer.incarnation);
  net::CallOptions options;
  options.deadline = context_.env.now() + kUnpinTime;
  options.cancel = &unpins_;
  net::RpcClient& owner = context_.peers.control(peer.address);
  const auto ended = co_await owner.call(net::Method::kUnpin, question, options);
  static_cast<void>(ended);  // an owner that does not answer frees it with the connection
}

// Once the owner has agreed the bytes are what was promised for good. Where they lie is asked after
// that once more: if the region was there all the time, it is the one in which the owner pinned.
Task<Result<PinnedBytes>> ShmTransport::pin(const Peer& peer, AttemptId id, const Slice& slice,
                                            TimePoint deadline) {
  constexpr std::uint32_t kRounds = 2;  // the second for a region that is another by now
  if (stopping_) co_return fail(Code::kCancelled);
  const std::shared_ptr<HostLink> link = link_to(peer);
  const bool in_time = co_await link->opened().wait(deadline);
  if (!in_time) co_return fail(Code::kDeadlineExceeded);
  Slice asked = slice;
  asked.code = Code::kNotReady;
  Error failure(Code::kNotSupported);
  for (std::uint32_t round = 0; round < kRounds && !stopping_; ++round, ++id.attempt) {
    const std::shared_ptr<HostPeer> host = link->peer();
    if (!host) co_return fail(link->failure());
    if (auto unknown = host->unknown({&asked, 1}); !unknown.empty()) {
      MC_CO_CHECK(co_await link->learn(std::move(unknown), deadline, nullptr));
    }
    const auto expected = host->place_of(asked);
    id.engine = host->guest();
    if (expected) {
      MC_CO_CHECK(co_await ask_pin(peer, id, asked, deadline));
      // From here on it is ended by who lets go of it.
      auto hold = returns_->hold(host, *expected, peer, id);
      const auto found = host->place_of(asked);
      if (found && found->bytes == expected->bytes) {
        co_return PinnedBytes({found->bytes, asked.length}, std::move(hold));
      }
      failure = found ? Error(Code::kRegionKeyMismatch) : found.error();
    } else {
      failure = expected.error();
    }
    if (failure.code() != Code::kRegionKeyMismatch) break;
  }
  co_return fail(std::move(failure));
}

bool ShmTransport::may_still_land(const Peer& peer, std::span<const Slice> slices) const {
  const auto it = links_.find(peer.incarnation);
  return it != links_.end() && it->second->patient().may_land(slices);
}

bool ShmTransport::has_ended(const Peer& peer) const {
  const auto it = links_.find(peer.incarnation);
  return it != links_.end() && it->second->was_lost();
}

std::shared_ptr<DirectPath> ShmTransport::direct(const Peer& peer) {
  const auto it = links_.find(peer.incarnation);
  return it == links_.end() ? nullptr : it->second->peer();
}

void ShmTransport::forget_failures(const Peer& peer) {
  const auto it = links_.find(peer.incarnation);
  if (it == links_.end() || !it->second->has_failed()) return;
  if (it->second->patient().are_over()) links_.erase(it);
}

Task<void> ShmTransport::stop() {
  stopping_ = true;
  returns_->close();
  unpins_.cancel();
  for (auto& [incarnation, link] : links_)
    link->close(Error(Code::kCancelled));
  co_await tasks_.join();
  co_await server_.stop();
}

std::unique_ptr<Transport> create(const TransportContext& context) {
  return std::make_unique<ShmTransport>(context);
}

}  // namespace
}  // namespace shm

const TransportEntry& shm_transport_entry() {
  static const TransportEntry entry{"shm", &shm::create};
  return entry;
}

}  // namespace mooncake::transfer
