// Life of the engine, its segments, and what it asks of peers.
#include "transfer/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "base/log.h"
#include "os/event.h"
#include "transfer/engine_impl.h"

namespace mooncake::transfer {

namespace {

// How long a fence is tried behind the back of a caller whose deadline has passed.
constexpr base::Duration kLookForLeftWrites = std::chrono::milliseconds(1);
constexpr base::Duration kQuarantineTime = std::chrono::seconds(10);
constexpr base::Duration kClearInterval = std::chrono::milliseconds(2);
constexpr std::size_t kMostQuarantines = 1024;  // whose end is remembered until it is asked for
constexpr base::Duration kWithdrawTime = std::chrono::seconds(1);
constexpr base::Duration kPublishTime = std::chrono::seconds(5);

std::shared_ptr<base::Budget> make_budget(std::uint64_t limit) {
  return std::make_shared<base::Budget>(limit ? limit : std::numeric_limits<std::uint64_t>::max());
}

net::RpcServer::Options server_options(const net::Identity& identity, net::RpcLimits limits,
                                       base::Budget& budget) {
  net::RpcServer::Options options;
  options.budget = &budget;
  options.identity = identity;
  options.limits = limits;
  return options;
}

Task<Result<net::Bytes>> at_once(Result<net::Bytes> result) { co_return result; }

Result<void> still_copying(std::uint64_t base, std::uint64_t length) {
  return fail(Code::kBusy,
              fmt::format("a process of this host is still copying: {} bytes at {:#x} are in "
                          "quarantine. Ask again, or end that process",
                          length, base));
}

}  // namespace

Task<Result<std::unique_ptr<Engine>>> Engine::start(os::Env env, EngineOptions options) {
  auto engine = std::make_unique<EngineImpl>(env, std::move(options));
  auto opened = co_await engine->open();
  if (!opened) {
    co_await engine->stop();
    co_return fail(std::move(opened).error());
  }
  co_return std::unique_ptr<Engine>(std::move(engine));
}

EngineImpl::EngineImpl(os::Env env, EngineOptions options)
    : env_(env),
      identity_(std::move(options.identity)),
      listen_(std::move(options.listen)),
      max_attempts_(std::max<std::uint32_t>(1, options.max_attempts)),
      lanes_(std::max<std::uint32_t>(1, options.lanes)),
      scheduling_(options.scheduling),
      allowed_(std::move(options.transports)),
      plain_within_host_(options.plain_within_host),
      lookup_(options.lookup ? std::move(options.lookup) : make_p2p_lookup()),
      republish_interval_(options.republish_interval),
      budget_(make_budget(options.memory_budget)),
      crew_(options.copy_helpers),
      server_(net::RpcServer::create(env, server_options(identity_, options.limits, *budget_))) {
  add_metrics();
}

EngineImpl::~EngineImpl() { assert(open_batches_.empty() && behind_.running() == 0); }

Task<Result<void>> EngineImpl::open() {
  if (identity_.incarnation == base::Incarnation{}) {
    co_return fail(Code::kInvalidArgument, "an engine needs an incarnation");
  }
  server_->handle(net::Method::kDescribeRegions, [this](net::ServerCall& call) {
    if (const auto ours = questions_.find(call.trace_id()); ours != questions_.end()) {
      ours->second = true;
    }
    return at_once(answer_describe(registry_, call.body()));
  });
  server_->handle(net::Method::kNotify, [this](net::ServerCall& call) {
    return at_once(answer_notify(inbox_, call.body()));
  });
  if (listen_.host.empty()) {
    identity_.name =
        fmt::format("process-{:016x}", static_cast<std::uint64_t>(identity_.incarnation));
  } else {
    MC_CO_TRY(address_, server_->listen(listen_));
    identity_.name = net::to_string(address_);
  }

  peers_ = std::make_unique<PeerClients>(env_, identity_, shares_memory());
  const TransportContext context{env_,
                                 identity_,
                                 registry_,
                                 *server_,
                                 *peers_,
                                 transport_counters_,
                                 lanes_,
                                 !listen_.host.empty(),
                                 crew_,
                                 budget_,
                                 [this] { drop_ended_paths(); }};
  for (const TransportEntry& entry : builtin_transports()) {
    const bool allowed = allowed_.empty() ||
                         std::find(allowed_.begin(), allowed_.end(), entry.name) != allowed_.end();
    if (allowed) transports_.push_back(entry.create(context));
  }
  auto own = std::make_unique<Segment>();
  own->peer.name = identity_.name;
  own->peer.address = address_;
  own->peer.incarnation = identity_.incarnation;
  own->peer.same_process = true;
  own->peer.same_host = true;
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if (transports_[i]->direct(own->peer)) note_direct(*own, i);
  }
  segments_.push_back(std::move(own));
  handles_.emplace(identity_.name, SegmentHandle::kLocal);

  if (address_.port == 0) co_return Result<void>();
  auto published = co_await lookup_->publish(identity_.name, address_, env_.now() + kPublishTime);
  if (!published) co_return fail(std::move(published).error().with_context("publish " + name()));
  published_ = true;
  if (lookup_->may_forget() && republish_interval_ > base::Duration(0)) {
    keeper_.start(keep_published());
  }
  co_return Result<void>();
}

Task<void> EngineImpl::stop() {
  stopping_ = true;
  look_ups_.cancel();
  co_await keeper_.join();  // what it publishes must not come after what is withdrawn
  if (std::exchange(published_, false)) {
    auto withdrawn = co_await lookup_->withdraw(name(), env_.now() + kWithdrawTime);
    if (!withdrawn) base::log_warning("{}: {}", name(), withdrawn.error().message());
  }
  for (const auto& transport : transports_)
    co_await transport->stop();
  if (peers_) co_await peers_->stop();
  if (!open_batches_.empty() && !all_closed_) {
    os::Completion<bool> all_closed(env_.executor);
    all_closed_ = &all_closed;
    co_await all_closed;
    all_closed_ = nullptr;
  }
  co_await behind_.join();
  co_await server_->stop();
}

// A metadata server that was started again has lost all names. Says once what is wrong, and once
// that it is over.
Task<void> EngineImpl::keep_published() {
  os::Event never(env_.executor);
  bool reached = true;
  bool taken = false;
  while (!stopping_) {
    // Engines that have lost their server together don't come back together.
    const auto most = static_cast<std::uint64_t>(republish_interval_.count()) / 4;
    const base::Duration jitter(static_cast<std::int64_t>(env_.random.below(most + 1)));
    co_await never.wait(env_.now() + republish_interval_ - jitter, &look_ups_);
    if (stopping_) co_return;
    const auto standing = co_await renew_publication();
    if (stopping_) co_return;
    if (!standing) {
      if (std::exchange(reached, false)) {
        base::log_warning("{}: the metadata server doesn't answer as it should: {}", name(),
                          standing.error().message());
      }
      continue;
    }
    if (!std::exchange(reached, true)) base::log_warning("{}: the metadata server is back", name());
    const bool is_taken = *standing == SegmentLookup::Standing::kTaken;
    if (*standing == SegmentLookup::Standing::kMissing) {
      base::log_warning("{}: published again, the metadata server had lost it", name());
    } else if (is_taken && !taken) {
      base::log_warning("{}: another engine has published this name, which leads there now",
                        name());
    }
    taken = is_taken;
  }
}

// What was found; kMissing: and is published by now.
Task<Result<SegmentLookup::Standing>> EngineImpl::renew_publication() {
  auto standing =
      co_await lookup_->standing(name(), address_, env_.now() + kPublishTime, &look_ups_);
  if (!standing || stopping_) co_return standing;
  published_ = *standing == SegmentLookup::Standing::kPublished;
  if (*standing != SegmentLookup::Standing::kMissing) co_return standing;
  // Not cancelled, so that it can't overtake a withdrawal; short, since stop() waits for it.
  published_ = true;
  MC_CO_CHECK(co_await lookup_->publish(name(), address_, env_.now() + kWithdrawTime));
  co_return standing;
}

Result<memory::Region> EngineImpl::register_memory(std::uint64_t base, std::uint64_t length,
                                                   std::string_view location,
                                                   std::shared_ptr<memory::ExtentTable> extents) {
  return registry_.add(base, length, location, memory::Permission::kReadWrite, std::move(extents));
}

Task<Result<void>> EngineImpl::unregister_memory(std::uint64_t base, TimePoint deadline) {
  auto removed = registry_.remove(base);
  if (removed) co_return co_await finish_unregister(*std::move(removed), deadline);
  if (quarantines_.contains(base)) co_return co_await leave_quarantine(base, deadline);
  co_return fail(std::move(removed).error());
}

// What is served on this thread asks Access::live() before each copy, so that of it nothing touches
// the range from here on, however long a peer takes to notice. Other processes are waited for.
Task<Result<void>> EngineImpl::finish_unregister(memory::Registry::Removed removed,
                                                 TimePoint deadline) {
  const bool clear = co_await wait_until_clear(removed, deadline);
  if (clear) co_return Result<void>();
  const std::uint64_t base = removed.base(), length = removed.length();
  behind_.start(clear_behind(std::move(removed)));
  co_return still_copying(base, length);
}

Task<Result<void>> EngineImpl::leave_quarantine(std::uint64_t base, TimePoint deadline) {
  const auto found = quarantines_.find(base);
  if (found == quarantines_.end()) {
    co_return fail(Code::kAddressNotRegistered, fmt::format("nothing begins at {:#x}", base));
  }
  const std::shared_ptr<Quarantine> quarantine = found->second;
  const bool over = co_await quarantine->over.wait(deadline);
  if (over && quarantine->clear) {
    const auto youngest = quarantines_.find(base);
    if (youngest != quarantines_.end() && youngest->second == quarantine) {
      quarantines_.erase(youngest);
    }
    co_return Result<void>();
  }
  co_return still_copying(base, quarantine->length);
}

// A copier is inside for one chunk at a time, unless it was stopped there.
Task<bool> EngineImpl::wait_until_clear(memory::Registry::Removed& removed, TimePoint deadline) {
  constexpr int kQuickLooks = 64;  // a chunk takes some ten microseconds
  for (int look = 0; !removed.is_clear(); ++look) {
    if (stopping_ || env_.now() >= deadline) co_return false;
    if (look < kQuickLooks) {
      co_await env_.executor.yield();
    } else {
      co_await env_.executor.sleep_for(kClearInterval);
    }
  }
  removed.retire();
  co_return true;
}

// What lies in a pool counts as that already: it stays for as long.
Task<void> EngineImpl::clear_behind(memory::Registry::Removed removed) {
  const std::uint64_t base = removed.base(), length = removed.length();
  const bool counted = removed.in_pool();
  const auto quarantine = std::make_shared<Quarantine>(env_.executor);
  quarantine->length = length;
  if (quarantines_.size() >= kMostQuarantines) {
    std::erase_if(quarantines_, [](const auto& each) { return each.second->over.is_set(); });
  }
  quarantines_.insert_or_assign(base, quarantine);
  quarantined_bytes_ += length;
  if (!counted) budget_->add(base::MemoryUse::kQuarantine, length);
  while (!stopping_) {
    quarantine->clear = co_await wait_until_clear(removed, env_.now() + kQuarantineTime);
    if (quarantine->clear) break;
  }
  quarantine->over.set();
  if (!counted) budget_->give_back(base::MemoryUse::kQuarantine, length);
  quarantined_bytes_ -= length;
}

Segment* EngineImpl::find_segment(SegmentHandle handle) {
  const auto index = static_cast<std::uint64_t>(handle);
  return index < segments_.size() ? segments_[index].get() : nullptr;
}

SegmentHandle EngineImpl::handle_of(const std::string& name, const net::Address& address,
                                    bool found_by_name) {
  auto [it, is_new] = handles_.emplace(name, static_cast<SegmentHandle>(segments_.size()));
  if (is_new) {
    segments_.push_back(std::make_unique<Segment>());
    segments_.back()->handle = it->second;
  }
  Segment& segment = *segments_[static_cast<std::uint64_t>(it->second)];
  if (it->second == SegmentHandle::kLocal) return it->second;
  segment.found_by_name |= found_by_name;
  segment.peer.name = name;
  if (segment.peer.address != address) {
    segment.peer.address = address;
    segment.peer.incarnation = {};
    segment.peer.same_process = address.port != 0 && address == address_;
    segment.peer.same_host = segment.peer.same_process;
    segment.keys.clear();
  }
  return it->second;
}

Task<Result<net::Address>> EngineImpl::find_address(std::string name, TimePoint deadline,
                                                    os::CancelToken* cancel) {
  os::CancelToken over;
  os::CancelToken::Watch ended(&look_ups_, [&over] { over.cancel(); });
  os::CancelToken::Watch given_up(cancel, [&over] { over.cancel(); });
  co_return co_await lookup_->find(std::move(name), deadline, &over);
}

Task<Result<SegmentHandle>> EngineImpl::open_segment(std::string name, TimePoint deadline,
                                                     os::CancelToken* cancel) {
  if (stopping_) co_return fail(Code::kNotReady, "the engine is closed");
  const auto own = handles_.find(name);
  if (own != handles_.end() && own->second == SegmentHandle::kLocal) co_return own->second;
  auto address = co_await find_address(name, deadline, cancel);
  if (!address) co_return fail(std::move(address).error());
  const SegmentHandle handle = handle_of(name, *address, true);
  Segment& segment = *find_segment(handle);
  if (!segment.peer.same_process && segment.peer.incarnation == base::Incarnation{}) {
    const auto known = co_await describe(segment, {}, deadline, cancel);
    if (!known) {
      co_return fail(Error(known.error()).with_context("open segment " + name));
    }
  }
  co_return handle;
}

SegmentHandle EngineImpl::open_address(const std::string& name, const net::Address& address) {
  return handle_of(name, address, false);
}

Task<Result<SegmentHandle>> EngineImpl::known_segment(std::string name, TimePoint deadline,
                                                      os::CancelToken* cancel) {
  const auto known = handles_.find(name);
  if (known != handles_.end() && !stopping_) co_return known->second;
  co_return co_await open_segment(std::move(name), deadline, cancel);
}

// A connection that has ended unnoticed says nothing of who lives there now: a second one does.
Task<Result<net::Bytes>> EngineImpl::ask(Segment& segment, std::vector<AskedRange> ranges,
                                         TimePoint deadline, os::CancelToken* cancel) {
  const net::Bytes body = encode_describe(ranges);
  auto reply = co_await ask_once(segment, body, deadline, cancel);
  const bool lost = !reply && reply.error().code() == Code::kConnectionLost;
  if (lost && !stopping_ && !os::is_cancelled(cancel)) {
    reply = co_await ask_once(segment, body, deadline, cancel);
  }
  co_return reply;
}

Task<Result<net::Bytes>> EngineImpl::ask_once(Segment& segment, const net::Bytes& body,
                                              TimePoint deadline, os::CancelToken* cancel) {
  if (stopping_) co_return fail(Code::kCancelled, "the engine is closed");
  const net::Address asked = segment.peer.address;
  net::CallOptions options;
  options.deadline = deadline;
  options.cancel = cancel;
  options.trace_id = env_.random.next();
  questions_.emplace(options.trace_id, false);
  auto reply = co_await peers_->control(asked).call(net::Method::kDescribeRegions, body, options);
  const bool asked_us = questions_.extract(options.trace_id).mapped();
  if (!reply) co_return fail(std::move(reply).error());
  if (reply->peer.incarnation == identity_.incarnation && !asked_us) {
    co_return fail(Code::kProtocolError, fmt::format("{} says that it is this engine, and is not",
                                                     net::to_string(asked)));
  }
  if (segment.peer.address == asked && segment.peer.incarnation != reply->peer.incarnation) {
    segment.keys.clear();
    segment.peer.incarnation = reply->peer.incarnation;
    segment.peer.same_process = reply->peer.incarnation == identity_.incarnation;
    segment.peer.same_host = identity_.boot_id.valid() && reply->peer.boot_id == identity_.boot_id;
  }
  co_return std::move(reply->body);
}

Task<Result<std::vector<DescribedRegion>>> EngineImpl::describe(Segment& segment,
                                                                std::vector<AskedRange> ranges,
                                                                TimePoint deadline,
                                                                os::CancelToken* cancel) {
  const std::size_t count = ranges.size();
  MC_CO_TRY(const net::Bytes reply, co_await ask(segment, std::move(ranges), deadline, cancel));
  co_return decode_described(reply, count);
}

bool EngineImpl::has_ended(const Peer& peer) const {
  return std::any_of(transports_.begin(), transports_.end(),
                     [&](const auto& transport) { return transport->has_ended(peer); });
}

Lanes* EngineImpl::lanes_of(Segment& segment, std::size_t transport) {
  const Capabilities& capabilities = transports_[transport]->capabilities();
  if (capabilities.lanes <= 1) return nullptr;
  auto& lanes = segment.lanes[transport];
  if (!lanes) lanes = std::make_unique<Lanes>(env_.executor, capabilities, scheduling_);
  return lanes.get();
}

void EngineImpl::note_direct(const Segment& segment, std::size_t transport) {
  auto path = transports_[transport]->direct(segment.peer);
  const auto index = static_cast<std::size_t>(segment.handle);
  std::lock_guard lock(mutex_);
  if (direct_.size() <= index) direct_.resize(index + 1);
  direct_[index].swap(path);  // the old one ends outside the lock, if this was its last user
}

void EngineImpl::drop_ended_paths() {
  std::vector<std::shared_ptr<DirectPath>> ended;  // go outside of the lock
  std::lock_guard lock(mutex_);
  for (auto& path : direct_) {
    if (path && path->has_ended()) ended.push_back(std::move(path));
  }
}

std::shared_ptr<DirectPath> EngineImpl::direct(SegmentHandle target) {
  const auto index = static_cast<std::size_t>(target);
  std::lock_guard lock(mutex_);
  return index < direct_.size() ? direct_[index] : nullptr;
}

Task<void> EngineImpl::find_again(Segment& segment, TimePoint deadline, os::CancelToken* cancel) {
  segment.peer.incarnation = {};
  if (!segment.found_by_name || stopping_) co_return;
  const Found found = std::make_shared<os::Completion<bool>>(env_.executor);
  os::Completion<bool>& over = *found;
  behind_.start(look_up(segment.peer.name, deadline, found));
  os::CancelToken::Watch watch(cancel, [&over] { over.set(false); });
  co_await over;
}

Task<void> EngineImpl::look_up(std::string name, TimePoint deadline, Found found) {
  const auto address = co_await lookup_->find(name, deadline, &look_ups_);
  if (address) handle_of(name, *address, true);
  found->set(true);
}

void EngineImpl::quarantine(Transport& transport, Peer peer, AttemptId id, std::uint64_t bytes) {
  if (!stopping_) behind_.start(fence_behind(transport, std::move(peer), id, bytes));
}

Task<bool> EngineImpl::wait_for_left_writes(const Peer& peer, std::span<const Slice> slices,
                                            TimePoint deadline, os::CancelToken* cancel) {
  const auto may_still_land = [&](const auto& transport) {
    return transport->may_still_land(peer, slices);
  };
  while (std::ranges::any_of(transports_, may_still_land)) {
    if (stopping_ || os::is_cancelled(cancel) || env_.now() >= deadline) co_return false;
    co_await env_.executor.sleep_for(kLookForLeftWrites);
  }
  co_return true;
}

Task<void> EngineImpl::fence_behind(Transport& transport, Peer peer, AttemptId id,
                                    std::uint64_t bytes) {
  quarantined_bytes_ += bytes;
  const TimePoint deadline = env_.now() + kQuarantineTime;
  Result<void> fenced = fail(Code::kCancelled);
  while (!fenced && !stopping_ && env_.now() < deadline) {
    fenced = co_await transport.fence(peer, id, deadline, nullptr);
    if (!fenced && !stopping_) co_await env_.executor.sleep_for(std::chrono::milliseconds(10));
  }
  quarantined_bytes_ -= bytes;
}

std::vector<Candidate> EngineImpl::candidates_for(const Peer& peer, bool guarded,
                                                  std::vector<std::string>* reasons) const {
  std::vector<Candidate> candidates;
  for (const auto& transport : transports_) {
    std::string why;
    Candidate candidate;
    candidate.capabilities = &transport->capabilities();
    candidate.reaches = transport->reaches(peer, why);
    if (plain_within_host_ && !guarded && candidate.capabilities->reach == Reach::kNetwork) {
      candidate.reaches = false;
      why = "only paths within this host are asked for";
    }
    candidates.push_back(candidate);
    if (reasons) reasons->push_back(std::move(why));
  }
  return candidates;
}

std::vector<Engine::PathChoice> EngineImpl::paths(SegmentHandle target) {
  const Segment* const segment = find_segment(target);
  if (!segment) return {};
  std::vector<std::string> reasons;
  const std::vector<Candidate> candidates = candidates_for(segment->peer, false, &reasons);
  const Workload typical{1u << 20, 1};
  std::vector<PathChoice> paths;
  for (const std::size_t i : rank(candidates, typical)) {
    const Capabilities& capabilities = *candidates[i].capabilities;
    const double seconds = expected_seconds(capabilities, typical);
    std::string reason =
        fmt::format("{}: 1 MiB in {:.0f} us expected",
                    capabilities.reach == Reach::kProcess ? "in this process"
                                                          : net::to_string(segment->peer.address),
                    seconds * 1e6);
    paths.push_back({capabilities.name, true, seconds, std::move(reason)});
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].reaches) continue;
    paths.push_back({candidates[i].capabilities->name, false, 0, std::move(reasons[i])});
  }
  return paths;
}

std::map<std::string, std::uint64_t> EngineImpl::bytes_by_path() const {
  std::lock_guard lock(mutex_);
  return {bytes_by_path_.begin(), bytes_by_path_.end()};
}

void EngineImpl::add_moved(std::string_view path, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto it = bytes_by_path_.find(path);
  if (it != bytes_by_path_.end()) {
    it->second += bytes;
  } else {
    bytes_by_path_.emplace(path, bytes);
  }
}

Engine::Counters EngineImpl::counters() const {
  Counters counters{};
  counters.refused_ranges = transport_counters_.refused_ranges.value();
  counters.fenced_attempts = transport_counters_.fenced_attempts.value();
  counters.retried_attempts = retried_attempts_;
  counters.stuck_attempts = stuck_attempts_;
  counters.quarantined_bytes = quarantined_bytes_;
  counters.helped_copies = crew_.helped();
  counters.server = server_->counters();
  return counters;
}

}  // namespace mooncake::transfer
