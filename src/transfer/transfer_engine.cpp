// The blocking facade: owns a runtime and the engine on it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "base/random.h"
#include "memory/pool.h"
#include "mooncake/transfer.h"
#include "net/runtime.h"
#include "os/limits.h"
#include "os/open_calls.h"
#include "os/run_blocking.h"
#include "transfer/copy_crew.h"
#include "transfer/engine.h"
#include "transfer/request_batch.h"
#include "transfer/settings.h"
#include "transfer/submitted_batch.h"

namespace mooncake {

namespace {

using base::Task;
using base::TimePoint;
using transfer::Engine;
using transfer::segment_name;

constexpr std::string_view kP2p = "P2PHANDSHAKE";
constexpr std::chrono::hours kLongestTimeout(24);
constexpr std::uint16_t kMostPortsTried = 500;

// A port that is not given is free to choose.
Result<net::Address> listen_address(const std::string& local_name) {
  auto one = net::parse_address(local_name, 1);
  const auto two = net::parse_address(local_name, 2);
  if (!one || !two) return fail(std::move(one).error().with_context("local_name"));
  if (one->port != two->port) one->port = 0;
  return one;
}

Result<Settings> read_environment() {
  SettingInputs inputs;
  inputs.environment = process_environment(transfer::transfer_settings());
  return Settings::resolve(transfer::transfer_settings(), inputs);
}

// Ports to try, one after the other. 0: any free one.
struct PortRange {
  std::uint16_t first = 0, count = 1;
  std::uint16_t at(std::uint16_t i) const { return static_cast<std::uint16_t>(first + i % count); }
};

// What is given is taken. Else one of the range, if there is one; else the system chooses.
Result<PortRange> ports_to_try(const TransferOptions& options, const net::Address& listen,
                               const Settings& settings) {
  const std::int64_t first = settings.integer("min_rpc_port");
  const std::int64_t last = settings.integer("max_rpc_port");
  if (first > last) {
    return fail(Code::kInvalidArgument,
                fmt::format("min_rpc_port: '{}' (MC_MIN_RPC_PORT) is above max_rpc_port, '{}' "
                            "(MC_MAX_RPC_PORT)",
                            first, last));
  }
  const bool given = settings.source("min_rpc_port") != SettingSource::kDefault ||
                     settings.source("max_rpc_port") != SettingSource::kDefault;
  if (listen.port != 0 || !given || !options.serve) return PortRange{listen.port};
  return PortRange{static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(last - first + 1)};
}

Result<void> set_path(const std::string& path, const Settings& settings,
                      transfer::EngineOptions& options) {
  constexpr std::array<std::string_view, 5> kPaths = {"auto", "tcp", "shm", "unix", "ring"};
  if (std::ranges::find(kPaths, path) == kPaths.end()) {
    return fail(Code::kInvalidArgument,
                "path: '" + path + "' is not one of auto|tcp|shm|unix|ring");
  }
  // Within the engine copies are local, whatever is asked for between engines.
  options.lanes = static_cast<std::uint32_t>(settings.integer("tcp_lanes_per_peer"));
  const bool sockets_only = path == "tcp" || settings.boolean("force_tcp");
  if (sockets_only) options.transports = {"local", "tcp"};
  if (!sockets_only && (path == "unix" || path == "ring")) {
    options.transports = {"local", "tcp", path};
  }
  options.plain_within_host = path == "shm" && !sockets_only;
  return {};
}

Task<std::string> expose(Engine& engine) { co_return engine.metrics().expose(); }

// The first error, after all of them.
Task<Result<void>> finish_all(Engine& engine, std::vector<memory::Registry::Removed> removed,
                              TimePoint deadline) {
  Result<void> result;
  for (memory::Registry::Removed& each : removed) {
    auto finished = co_await engine.finish_unregister(std::move(each), deadline);
    if (!finished && result) result = std::move(finished);
  }
  co_return result;
}

// Most often nobody is there to be waited for.
bool retire_at_once(memory::Registry::Removed& removed) {
  if (removed.accesses() != 0 || !removed.is_clear()) return false;
  removed.retire();
  return true;
}

unsigned copy_helpers(const Settings& settings) {
  const std::int64_t wanted = settings.integer("copy_helpers");
  return wanted < 0 ? transfer::CopyCrew::helpers_by_quota() : static_cast<unsigned>(wanted);
}

std::uint64_t memory_budget(const TransferOptions& options, const Settings& settings) {
  if (options.memory_budget != 0) return options.memory_budget;
  const std::uint64_t set = settings.bytes("memory_budget");
  return set != 0 ? set : os::usable_memory() / 4 * 3;
}

Task<Result<std::unique_ptr<Engine>>> start_engine(os::Env env, TransferOptions options,
                                                   Settings settings, net::Address listen) {
  transfer::EngineOptions engine_options;
  MC_CO_CHECK(set_path(options.path, settings, engine_options));
  engine_options.copy_helpers = copy_helpers(settings);
  engine_options.memory_budget = memory_budget(options, settings);
  if (options.metadata_server != kP2p) {
    auto store = metastore::open_metastore(env, options.metadata_server);
    if (!store) co_return fail(std::move(store).error().with_context("metadata_server"));
    engine_options.lookup =
        transfer::make_metastore_lookup(*std::move(store), env.executor.clock());
  }
  engine_options.identity.role = "engine";
  engine_options.identity.name = options.local_name;
  engine_options.identity.boot_id = base::boot_id();
  engine_options.identity.incarnation = static_cast<base::Incarnation>(base::secure_random() | 1);
  engine_options.identity.cluster_secret = options.cluster_secret;
  if (options.serve) engine_options.listen = std::move(listen);
  co_return co_await Engine::start(env, std::move(engine_options));
}

// Begins anywhere among the ports, so that many engines don't all try the same ones.
Result<std::unique_ptr<Engine>> start_on_one(os::Env env, const TransferOptions& options,
                                             const Settings& settings, net::Address listen,
                                             PortRange ports) {
  const auto begin = static_cast<std::uint16_t>(base::secure_random() % ports.count);
  const std::uint16_t tries = std::min(ports.count, kMostPortsTried);
  for (std::uint16_t i = 1;; ++i) {
    listen.port = ports.at(static_cast<std::uint16_t>(begin + i));
    auto engine = os::run_blocking(env.executor, start_engine(env, options, settings, listen));
    if (!engine) return fail(Code::kInternal, "the runtime has stopped");
    if (*engine) return **std::move(engine);
    Error error = std::move(*engine).error();
    if (error.code() != Code::kAddressInUse || ports.count == 1) return fail(std::move(error));
    if (i < tries) continue;
    return fail(std::move(error).with_context(fmt::format(
        "none of {} ports that were tried is free (MC_MIN_RPC_PORT, MC_MAX_RPC_PORT)", tries)));
  }
}

}  // namespace

bool TransferOutcome::ok() const {
  return std::all_of(codes.begin(), codes.end(), [](std::int32_t code) { return code == 0; });
}

struct TransferEngine::State {
  const pid_t owner = ::getpid();
  std::unique_ptr<net::Runtime> runtime;
  std::unique_ptr<Engine> engine;

  os::OpenCalls calls;  // and batches

  std::mutex mutex;
  std::unique_ptr<memory::Preparer> preparer;  // guarded by mutex, as below
  std::map<void*, std::unique_ptr<memory::Pool>> pools;

  bool in_own_process() const { return ::getpid() == owner; }
  // One call of a user. Holds off the destructor.
  Result<os::OpenCalls::Stay> admit() {
    if (!in_own_process()) {
      return fail(Code::kNotReady, "a forked child can't use its parent's engine");
    }
    os::OpenCalls::Stay stay = calls.enter();
    if (!stay) return fail(Code::kNotReady, "the engine is being closed");
    return stay;
  }
  TimePoint deadline(Milliseconds timeout) const {
    return runtime->env().now() +
           std::clamp<base::Duration>(timeout, base::Duration(0), kLongestTimeout);
  }
  memory::Preparer& get_preparer() {
    std::lock_guard lock(mutex);
    if (!preparer) preparer = std::make_unique<memory::Preparer>();
    return *preparer;
  }
  memory::Preparer::Totals prepared() {
    std::lock_guard lock(mutex);
    return preparer ? preparer->totals() : memory::Preparer::Totals{};
  }
  void add_metrics(base::Duration start_time);
};

void TransferEngine::State::add_metrics(base::Duration start_time) {
  const auto seconds = [](base::Duration time) {
    return std::chrono::duration<double>(time).count();
  };
  base::MetricsRegistry& registry = engine->metrics();
  registry.gauge("mooncake_engine_start_seconds", "Time that it took to start the engine",
                 [value = seconds(start_time)] { return value; });
  registry.gauge("mooncake_engine_prepared_bytes_total", "Memory of pools that was made ready",
                 [this] { return static_cast<double>(prepared().bytes); });
  registry.gauge("mooncake_engine_prepare_seconds_total", "Time that this took",
                 [this, seconds] { return seconds(prepared().time); });
  registry.gauge("mooncake_engine_prepare_late_total",
                 "Pools that were handed out before their first part was ready",
                 [this] { return static_cast<double>(prepared().late); });
}

TransferEngine::TransferEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<TransferEngine>> TransferEngine::create(const TransferOptions& options) {
  const auto begun = std::chrono::steady_clock::now();
  MC_TRY(const net::Address listen, listen_address(options.local_name));
  MC_TRY(const Settings settings, read_environment());
  MC_TRY(const PortRange ports, ports_to_try(options, listen, settings));
  auto state = std::make_unique<State>();
  MC_TRY(state->runtime, net::Runtime::start("mc-transfer"));
  MC_TRY(state->engine, start_on_one(state->runtime->env(), options, settings, listen, ports));
  state->add_metrics(std::chrono::steady_clock::now() - begun);
  return std::unique_ptr<TransferEngine>(new TransferEngine(std::move(state)));
}

TransferEngine::~TransferEngine() {
  if (!state_->in_own_process()) {
    // Threads, sockets and pools are the parent's; taking anything down here would wait for threads
    // that a fork doesn't copy.
    static_cast<void>(state_.release());
    return;
  }
  state_->calls.close();
  os::run_blocking(state_->runtime->env().executor, state_->engine->stop());
  state_->calls.wait_until_empty();
  for (auto& [address, pool] : state_->pools)
    state_->preparer->remove(*pool);
  state_->pools.clear();
  state_->engine.reset();
}

const std::string& TransferEngine::local_name() const { return state_->engine->name(); }
std::uint16_t TransferEngine::port() const { return state_->engine->address().port; }
transfer::Engine& TransferEngine::engine() { return *state_->engine; }
net::Runtime& TransferEngine::runtime() { return *state_->runtime; }
memory::Preparer& TransferEngine::preparer() { return state_->get_preparer(); }

std::string TransferEngine::metrics() {
  const auto call = state_->admit();
  if (!call) return {};
  auto text = os::run_blocking(state_->runtime->env().executor, expose(*state_->engine));
  return text.value_or(std::string());
}

Result<void> TransferEngine::register_memory(void* address, std::uint64_t length,
                                             std::string_view location) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  MC_CHECK(state_->engine->register_memory(reinterpret_cast<std::uint64_t>(address), length,
                                           location, nullptr));
  return {};
}

Result<void> TransferEngine::unregister_memory(void* address, Milliseconds timeout) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  const auto base = reinterpret_cast<std::uint64_t>(address);
  auto removed = state_->engine->registry().remove(base);
  if (removed && retire_at_once(*removed)) return {};
  const TimePoint deadline = state_->deadline(timeout);
  auto done =
      os::run_blocking(state_->runtime->env().executor,
                       removed ? state_->engine->finish_unregister(*std::move(removed), deadline)
                               : state_->engine->leave_quarantine(base, deadline));
  if (!done) return fail(Code::kNotReady);
  const bool unknown = !removed && !*done && done->error().code() == Code::kAddressNotRegistered;
  return unknown ? fail(std::move(removed).error()) : *std::move(done);
}

Result<void> TransferEngine::register_memory_batch(std::span<const MemoryRange> ranges,
                                                   std::string_view location) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  std::vector<memory::Registry::Range> all;
  all.reserve(ranges.size());
  for (const MemoryRange& range : ranges)
    all.push_back({reinterpret_cast<std::uint64_t>(range.address), range.length});
  return state_->engine->registry().add_all(all, location);
}

Result<void> TransferEngine::unregister_memory_batch(std::span<void* const> addresses,
                                                     Milliseconds timeout) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  Result<void> result;
  std::vector<memory::Registry::Removed> busy;
  for (void* const address : addresses) {
    auto removed = state_->engine->registry().remove(reinterpret_cast<std::uint64_t>(address));
    if (!removed && result) result = fail(std::move(removed).error());
    if (removed && !retire_at_once(*removed)) busy.push_back(*std::move(removed));
  }
  if (busy.empty()) return result;
  auto finished =
      os::run_blocking(state_->runtime->env().executor,
                       finish_all(*state_->engine, std::move(busy), state_->deadline(timeout)));
  if (!result) return result;
  return finished ? *std::move(finished) : fail(Code::kNotReady);
}

Result<void*> TransferEngine::allocate_pool(std::uint64_t length) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  memory::Pool::Options options;
  options.size = length;
  options.name = "mooncake-buffer";
  options.budget = state_->engine->budget().get();
  options.use = base::MemoryUse::kBuffers;
  MC_TRY(auto pool, memory::Pool::create(options));
  void* const address = pool->data();
  state_->engine->registry().share_pool(*pool);
  state_->get_preparer().add(*pool, memory::kReadyFirst, {});
  std::lock_guard lock(state_->mutex);
  state_->pools.emplace(address, std::move(pool));
  return address;
}

void TransferEngine::free_pool(void* address) {
  std::unique_ptr<memory::Pool> pool;
  {
    std::lock_guard lock(state_->mutex);
    auto taken = state_->pools.extract(address);
    if (taken) pool = std::move(taken.mapped());
  }
  if (!pool) return;
  state_->engine->registry().unshare_pool(*pool);
  state_->get_preparer().remove(*pool);
}

Result<void*> TransferEngine::allocate_memory(std::uint64_t length) {
  MC_TRY(void* const address, allocate_pool(length));
  auto registered = register_memory(address, length);
  if (registered) return address;
  free_pool(address);
  return fail(std::move(registered).error());
}

Result<void> TransferEngine::free_memory(void* address) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->pools.contains(address)) {
      return fail(Code::kInvalidArgument, fmt::format("{} was not allocated here", address));
    }
  }
  MC_CHECK(unregister_memory(address));
  free_pool(address);
  return {};
}

Result<SegmentHandle> TransferEngine::open_segment(std::string_view name, Milliseconds timeout) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  auto handle =
      os::run_blocking(state_->runtime->env().executor,
                       state_->engine->open_segment(segment_name(name), state_->deadline(timeout)));
  return handle ? *std::move(handle) : fail(Code::kNotReady);
}

TransferOutcome TransferEngine::transfer(std::span<const TransferRequest> requests,
                                         Milliseconds timeout,
                                         std::optional<Notification> notification) {
  const auto call = state_->admit();
  if (!call) {
    TransferOutcome outcome;
    outcome.codes.assign(requests.size(), call.error().transfer_code());
    outcome.status = fail(call.error());
    return outcome;
  }
  const TimePoint deadline = state_->deadline(timeout);
  transfer::RequestBatch batch(*state_->engine, requests, std::move(notification));
  batch.copy_directly(deadline);
  if (batch.has_rest()) {
    os::run_blocking(state_->runtime->env().executor, batch.finish(deadline));
  }
  return batch.take_outcome();
}

Result<std::shared_ptr<TransferBatch>> TransferEngine::submit(
    std::vector<TransferRequest> requests, Milliseconds timeout,
    std::optional<Notification> notification) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  MC_TRY(os::OpenCalls::Stay stay, state_->admit());
  const auto batch = std::make_shared<transfer::SubmittedBatch>(
      *state_->engine, state_->runtime->env().executor, std::move(requests),
      std::move(notification), std::move(stay));
  batch->start(state_->deadline(timeout));
  return batch;
}

Result<void> TransferEngine::notify(std::string_view segment, const Notification& notification,
                                    Milliseconds timeout) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  auto sent = os::run_blocking(state_->runtime->env().executor,
                               state_->engine->notify_by_name(segment_name(segment), notification,
                                                              state_->deadline(timeout)));
  return sent ? *std::move(sent) : fail(Code::kNotReady);
}

std::vector<Notification> TransferEngine::take_notifications() {
  const auto call = state_->admit();
  if (!call) return {};
  return state_->engine->take_notifications();
}

Result<void> TransferEngine::probe(std::string_view segment, Milliseconds timeout) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  auto alive =
      os::run_blocking(state_->runtime->env().executor,
                       state_->engine->probe(segment_name(segment), state_->deadline(timeout)));
  return alive ? *std::move(alive) : fail(Code::kNotReady);
}

Result<std::uint64_t> TransferEngine::first_buffer(std::string_view segment, Milliseconds timeout) {
  MC_TRY(const os::OpenCalls::Stay call, state_->admit());
  auto address = os::run_blocking(
      state_->runtime->env().executor,
      state_->engine->first_buffer(segment_name(segment), state_->deadline(timeout)));
  return address ? *std::move(address) : fail(Code::kNotReady);
}

}  // namespace mooncake
