#include "store/master/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "net/handshake.h"
#include "store/master/client_names.h"
#include "store/master/key_pattern.h"
#include "store/master/messages.h"
#include "store/master/server_metrics.h"
#include "store/why/explain.h"

namespace mooncake::store::master {

namespace {

// Epochs stored ahead, so that rising through a few costs no write each.
constexpr std::uint32_t kEpochsAhead = 1024;
// An epoch further above the wall clock than this is nobody's honest epoch (about 4 years).
constexpr std::uint64_t kEpochSlack = 1u << 27;
// A question who answers at an address takes no longer, and no more are asked at once.
constexpr base::Duration kProbeTime = std::chrono::seconds(1);
constexpr std::size_t kMostProbes = 16;
// A step of a sweep takes no longer, beside its last key: others wait for so long.
constexpr base::Duration kSweepStep = std::chrono::milliseconds(2);

Result<std::uint32_t> read_epoch_limit(os::Disk& disk, const std::string& file) {
  if (file.empty()) return 0;
  Result<std::string> content = disk.read(file);
  if (!content && content.error().code() == Code::kObjectNotFound) return 0;
  if (!content) return fail(std::move(content).error().with_context("state_dir: epoch file"));
  std::uint32_t value = 0;
  const char* end = content->data() + content->size();
  const auto [rest, error] = std::from_chars(content->data(), end, value);
  if (error != std::errc() || std::string_view(rest, end) != "\n") {
    return fail(Code::kInvalidArgument,
                fmt::format("epoch file {}: not a number and a newline; restore it, or remove it "
                            "after making sure that no client of its Master is left",
                            file));
  }
  return value;
}

class Server final : public MasterServer {
 public:
  Server(os::Env env, ServerOptions options, const CoreOptions& core)
      : env_(env),
        options_(std::move(options)),
        core_(core),
        rpc_(net::RpcServer::create(env, rpc_options())),
        metrics_(core_, *rpc_),
        why_requests_(metrics_.registry().counter("master_why_requests_total",
                                                  "Questions what became of keys")),
        started_(env_.now()) {
    epoch_ = core_.epoch();
    for (const net::Method method :
         {net::Method::kMount, net::Method::kUnmount, net::Method::kHeartbeat, net::Method::kGrant,
          net::Method::kPublish, net::Method::kRevoke, net::Method::kLocate, net::Method::kExist,
          net::Method::kRemove, net::Method::kSweep}) {
      rpc_->handle(method, [this, method](net::ServerCall& call) { return answer(method, call); });
    }
    rpc_->handle(net::Method::kWhy, [this](net::ServerCall& call) { return answer_why(call); });
    tasks_.start(tick());
  }

  Result<net::Address> listen(const net::Address& at) override { return rpc_->listen(at); }
  void serve(std::unique_ptr<net::Channel> channel) override { rpc_->serve(std::move(channel)); }
  Task<void> stop() override;
  Task<Result<std::uint64_t>> remove_matching(std::string pattern, bool force) override;

  Effect find(std::string_view key, Lease lease) override;
  Task<void> yield() override { co_await env_.executor.yield(); }
  std::string summary() const override { return metrics_summary(core_); }
  KeyReport why(std::string_view key, std::size_t most_events) const override;
  const Core& core() const override { return core_; }
  std::uint64_t name_of(ClientId client) const override { return names_.of(client); }
  net::RpcServer::Counters rpc_counters() const override { return rpc_->counters(); }
  base::MetricsRegistry& metrics() override { return metrics_.registry(); }

 private:
  net::RpcServer::Options rpc_options() {
    net::RpcServer::Options rpc;
    rpc.identity = options_.identity;
    rpc.limits = options_.limits;
    rpc.epoch = &epoch_;
    return rpc;
  }
  Task<Result<net::Bytes>> answer(net::Method method, net::ServerCall& call);
  Task<Result<net::Bytes>> answer_why(net::ServerCall& call);
  Result<net::Bytes> reply(const Request& request, const Effects& effects) const;
  void apply(const Command& command, Effects& effects);
  void sweep(Command& command, base::TimePoint deadline, Effects& effects);
  void extend_epochs();
  Task<void> tick();
  const SegmentAddress* refused_for_a_namesake(const Request& request,
                                               const Effects& effects) const;
  Task<void> disown_namesake(const SegmentAddress* wanted);
  Task<bool> answers_as(std::string name, base::Incarnation owner);

  using Matches = std::function<bool(std::string_view)>;
  // Null for the empty pattern. The last one is kept, since a client comes with it again and again.
  Result<const Matches*> compiled(std::string_view pattern);

  const os::Env env_;
  const ServerOptions options_;
  Core core_;
  base::Epoch epoch_{};  // what frames say; the core's, whatever peers claim
  std::unique_ptr<net::RpcServer> rpc_;
  ServerMetrics metrics_;
  base::Counter& why_requests_;
  const base::TimePoint started_;
  const ClientNames names_;
  std::vector<Effect> arena_;
  std::vector<Decision> decisions_;
  os::Completion<bool>* ticking_ = nullptr;  // the wait for the next tick
  std::size_t probes_ = 0;                   // under way
  std::string pattern_;
  Matches matches_;  // pattern_
  bool stopping_ = false;
  bool absurd_epoch_reported_ = false;
  base::TaskGroup tasks_;
};

void Server::apply(const Command& command, Effects& effects) {
  if (options_.on_decision) effects.decisions = &decisions_;
  core_.apply(command, env_.now(), effects);
  for (const Decision& decision : decisions_)
    options_.on_decision(decision);
  decisions_.clear();
  if (core_.wants_epochs()) extend_epochs();
  epoch_ = core_.epoch();
}

// One step, which ends by the deadline, too.
void Server::sweep(Command& command, base::TimePoint deadline, Effects& effects) {
  const base::TimePoint end = std::min(env_.now() + kSweepStep, deadline);
  const std::function<bool()> enough = [this, end] { return env_.now() >= end; };
  command.enough = &enough;
  apply(command, effects);
  command.enough = nullptr;
}

void Server::extend_epochs() {
  const std::uint64_t wanted = static_cast<std::uint32_t>(core_.wanted_limit());
  const auto now = static_cast<std::uint64_t>(env_.executor.clock().unix_seconds());
  if (wanted > now + kEpochSlack) {
    if (!std::exchange(absurd_epoch_reported_, true)) {
      base::log_error("a client claims an epoch that would need the limit {}; it is not served",
                      wanted);
    }
    return;
  }
  const auto limit =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted + kEpochsAhead, ~std::uint32_t{0}));
  if (!options_.epoch_file.empty()) {
    Result<void> stored =
        env_.disk.write_atomically(options_.epoch_file, fmt::format("{}\n", limit));
    if (!stored) {
      base::log_error("epoch file {}: {}", options_.epoch_file, stored.error().message());
      return;
    }
  }
  core_.extend_epochs(static_cast<base::Epoch>(limit));
}

// The core runs to its end within one turn, so that all calls share one arena.
Task<Result<net::Bytes>> Server::answer(net::Method method, net::ServerCall& call) {
  Result<Request> request = parse_request(method, call.body());
  if (!request) co_return fail(std::move(request).error());
  if (method == net::Method::kSweep) {
    Result<const Matches*> matches = compiled(request->items[0].key);
    if (!matches) co_return fail(std::move(matches).error());
    request->command.matches = *matches;
  }
  arena_.assign(request->outcomes(), Effect());
  Effects effects;
  effects.items = arena_;
  if (method == net::Method::kSweep) {
    sweep(request->command, call.deadline(), effects);
  } else {
    apply(request->command, effects);
  }
  if (const SegmentAddress* wanted = refused_for_a_namesake(*request, effects)) {
    co_await disown_namesake(wanted);
    // Others may have used the arena meanwhile, and the core.
    arena_.assign(request->outcomes(), Effect());
    effects.items = arena_;
    apply(request->command, effects);
  }
  metrics_.answered(request->command, effects, effects.code != Code::kOk);
  co_return reply(*request, effects);
}

Task<Result<net::Bytes>> Server::answer_why(net::ServerCall& call) {
  Result<WhyQuestion> question = parse_why(call.body());
  if (!question) co_return fail(std::move(question).error());
  why_requests_.add();
  std::vector<KeyReport> reports;
  for (const std::string_view key : question->keys)
    reports.push_back(why(key, question->most_events));
  co_return encode_why_reply(reports);
}

Effect Server::find(std::string_view key, Lease lease) {
  if (lease == Lease::kNone) return core_.peek(key);
  CommandItem item;
  item.key = key;
  Command command;
  command.kind = CommandKind::kLocate;
  command.items = {&item, 1};
  Effect effect;
  Effects effects;
  effects.items = {&effect, 1};
  apply(command, effects);
  return effect;
}

KeyReport Server::why(std::string_view key, std::size_t most_events) const {
  using std::chrono::milliseconds;
  const base::TimePoint now = env_.now();
  KeyReport report = core_.why(key, std::min(most_events, kMaxWhyEvents), now);
  report.master_uptime = std::chrono::duration_cast<milliseconds>(now - started_);
  report.master_time = env_.executor.clock().unix_seconds();
  if (!report.has_forgotten) report.remembered_for = report.master_uptime;
  explain(key, report);
  return report;
}

// The first segment of a mount whose name another engine's has; all of one client share theirs.
const SegmentAddress* Server::refused_for_a_namesake(const Request& request,
                                                     const Effects& effects) const {
  if (request.command.kind != CommandKind::kMount || effects.code != Code::kOk) return nullptr;
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const SegmentAddress& wanted = request.segments[i].address;
    if (effects.items[i].code != Code::kSegmentExists) continue;
    const SegmentAddress* there = core_.segment_named(wanted.name);
    if (there != nullptr && there->owner != wanted.owner) return &wanted;
  }
  return nullptr;
}

// A segment's name is the address of its engine, and one engine listens at an address. So when the
// new one answers there, nobody can reach the old one under it any more: it is dead, or has given
// its address up, and what it held is lost either way. Silence proves nothing.
Task<void> Server::disown_namesake(const SegmentAddress* wanted) {
  if (probes_ == kMostProbes) co_return;
  MountedSegment old;
  old.address.name = wanted->name;
  old.address.owner = core_.segment_named(wanted->name)->owner;
  ++probes_;
  const bool replaced = co_await answers_as(wanted->name, wanted->owner);
  --probes_;
  if (!replaced) co_return;
  base::log_warning("{}: another engine answers there now; what the one before held is lost",
                    old.address.name);
  Command command;
  command.kind = CommandKind::kDisown;
  command.segments = {&old, 1};
  Effect effect;
  Effects effects;
  effects.items = {&effect, 1};
  apply(command, effects);
}

Task<bool> Server::answers_as(std::string name, base::Incarnation owner) {
  Result<net::Address> at = net::parse_address(name, 0);
  if (!at || at->port == 0) co_return false;
  const base::TimePoint deadline = env_.now() + kProbeTime;
  Result<std::unique_ptr<net::Channel>> channel = co_await env_.network.connect(*at, deadline);
  if (!channel) co_return false;
  Result<net::PeerIdentity> peer =
      co_await net::greet(env_, **channel, options_.identity, name, deadline);
  (*channel)->close(Error(Code::kCancelled));
  co_return peer && peer->incarnation == owner;
}

Result<net::Bytes> Server::reply(const Request& request, const Effects& effects) const {
  switch (request.command.kind) {
    case CommandKind::kMount: {
      if (effects.code != Code::kOk) return fail(effects.code);
      const base::Duration client_ttl = options_.core.client_ttl;
      const MountTerms terms{core_.epoch(), client_ttl,
                             std::min(options_.heartbeat, client_ttl / 4)};
      return encode_mount_reply(terms, effects.items);
    }
    case CommandKind::kUnmount:
      if (effects.code != Code::kOk) return fail(effects.code);
      return encode_unmount_reply(effects.items);
    case CommandKind::kHeartbeat:
      if (effects.code != Code::kOk) return fail(effects.code);
      return encode_heartbeat_reply(core_.epoch());
    case CommandKind::kGrant:
      return encode_grant_reply(core_, effects);
    case CommandKind::kSweep:
      return encode_sweep_reply(effects.items.front());
    case CommandKind::kLocate:
      return encode_locate_reply(core_, effects, options_.core.lease_ttl);
    default:
      return encode_codes_reply(effects.items);
  }
}

Result<const Server::Matches*> Server::compiled(std::string_view pattern) {
  if (pattern.empty()) return nullptr;
  if (!matches_ || pattern != pattern_) {
    MC_TRY(KeyPattern fresh, KeyPattern::compile(pattern));
    const auto shared = std::make_shared<const KeyPattern>(std::move(fresh));
    pattern_ = pattern;
    matches_ = [shared](std::string_view key) { return shared->matches(key); };
  }
  return &matches_;
}

Task<Result<std::uint64_t>> Server::remove_matching(std::string pattern, bool force) {
  if (pattern.size() > kMaxKeyLength) {
    co_return fail(Code::kInvalidArgument,
                   fmt::format("a pattern of {} bytes, at most {}", pattern.size(), kMaxKeyLength));
  }
  CommandItem item;
  item.key = pattern;
  Command command;
  command.kind = CommandKind::kSweep;
  command.force = force;
  command.items = {&item, 1};
  std::uint64_t removed = 0;
  while (command.cursor != kSweepEnd && !stopping_) {
    Result<const Matches*> matches = compiled(pattern);
    if (!matches) co_return fail(std::move(matches).error());
    command.matches = *matches;
    Effect effect;
    Effects effects;
    effects.items = {&effect, 1};
    sweep(command, base::TimePoint::max(), effects);
    metrics_.answered(command, effects, false);
    removed += effect.size;
    command.cursor = effect.cursor;
    if (command.cursor != kSweepEnd) co_await env_.executor.yield();
  }
  co_return removed;
}

Task<void> Server::tick() {
  const base::Duration every = options_.report_every;
  base::TimePoint report_at = env_.now() + every;
  while (!stopping_) {
    if (every > base::Duration::zero() && env_.now() >= report_at) {
      base::log_info("{}", summary());
      report_at = env_.now() + every;
    }
    Command command;
    Effects effects;
    apply(command, effects);
    if (effects.more) {
      co_await env_.executor.yield();
      continue;
    }
    os::Completion<bool> due(env_.executor);
    ticking_ = &due;
    const os::TimerId timer =
        env_.executor.run_at(env_.now() + options_.tick, [&due] { due.set(true); });
    co_await due;
    ticking_ = nullptr;
    env_.executor.cancel(timer);
  }
}

Task<void> Server::stop() {
  stopping_ = true;
  if (ticking_ != nullptr) ticking_->set(true);
  co_await rpc_->stop();
  co_await tasks_.join();
}

}  // namespace

Result<std::unique_ptr<MasterServer>> MasterServer::create(os::Env env, ServerOptions options) {
  MC_TRY(const std::uint32_t used, read_epoch_limit(env.disk, options.epoch_file));
  const auto now = static_cast<std::uint64_t>(env.executor.clock().unix_seconds());
  const std::uint64_t epoch = std::max<std::uint64_t>(now, std::uint64_t{used} + 1);
  if (epoch + kEpochsAhead > ~std::uint32_t{0}) {
    return fail(Code::kInvalidArgument, fmt::format("epoch {} leaves no room above it", epoch));
  }
  CoreOptions core = options.core;
  core.epoch = static_cast<base::Epoch>(epoch);
  core.epoch_limit = static_cast<base::Epoch>(epoch + kEpochsAhead);
  core.hash_seed = env.random.next();
  if (!options.epoch_file.empty()) {
    Result<void> stored =
        env.disk.write_atomically(options.epoch_file, fmt::format("{}\n", epoch + kEpochsAhead));
    if (!stored) return fail(std::move(stored).error().with_context("state_dir: epoch file"));
  }
  return std::make_unique<Server>(env, std::move(options), core);
}

}  // namespace mooncake::store::master
