// The blocking facade: owns a runtime and the engine on it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "base/random.h"
#include "memory/pool.h"
#include "mooncake/transfer.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "transfer/blocking_batch.h"
#include "transfer/engine.h"
#include "transfer/settings.h"

namespace mooncake {

namespace {

using base::Task;
using base::TimePoint;
using transfer::Engine;

constexpr std::string_view kP2p = "P2PHANDSHAKE";
constexpr std::chrono::hours kLongestTimeout(24);

// A port that is not given is free to choose.
Result<net::Address> listen_address(const std::string& local_name) {
  auto one = net::parse_address(local_name, 1);
  const auto two = net::parse_address(local_name, 2);
  if (!one || !two) return fail(std::move(one).error().with_context("local_name"));
  if (one->port != two->port) one->port = 0;
  return one;
}

Result<void> set_path(const std::string& path, transfer::EngineOptions& options) {
  SettingInputs inputs;
  inputs.environment = process_environment(transfer::transfer_settings());
  MC_TRY(const Settings settings, Settings::resolve(transfer::transfer_settings(), inputs));
  if (path != "auto" && path != "tcp" && path != "shm") {
    return fail(Code::kInvalidArgument, "path: '" + path + "' is not one of auto|tcp|shm");
  }
  // Within the engine copies are local, whatever is asked for between engines.
  const bool sockets_only = path == "tcp" || settings.boolean("force_tcp");
  if (sockets_only) options.transports = {"local", "tcp"};
  options.plain_within_host = path == "shm" && !sockets_only;
  return {};
}

Task<Result<std::unique_ptr<Engine>>> start_engine(os::Env env, TransferOptions options,
                                                   net::Address listen) {
  transfer::EngineOptions engine_options;
  MC_CO_CHECK(set_path(options.path, engine_options));
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

}  // namespace

bool TransferOutcome::ok() const {
  return std::all_of(codes.begin(), codes.end(), [](std::int32_t code) { return code == 0; });
}

struct TransferEngine::State {
  explicit State(std::uint64_t limit)
      : budget(limit ? limit : std::numeric_limits<std::uint64_t>::max()) {}

  const pid_t owner = ::getpid();
  std::unique_ptr<net::Runtime> runtime;
  std::unique_ptr<Engine> engine;
  memory::Budget budget;

  std::mutex mutex;
  std::condition_variable idle;
  std::size_t calls = 0;  // guarded by mutex, as all below
  bool closing = false;
  std::unique_ptr<memory::Preparer> preparer;
  std::map<void*, std::unique_ptr<memory::Pool>> pools;

  bool in_own_process() const { return ::getpid() == owner; }
  TimePoint deadline(Milliseconds timeout) const {
    return runtime->env().now() +
           std::clamp<base::Duration>(timeout, base::Duration(0), kLongestTimeout);
  }
  memory::Preparer& get_preparer() {
    std::lock_guard lock(mutex);
    if (!preparer) preparer = std::make_unique<memory::Preparer>();
    return *preparer;
  }
};

namespace {

// One call of a user. Holds off the destructor; refused in a forked child and while closing.
template <typename State>
class Call {
 public:
  explicit Call(State& state) : state_(state) {
    if (!state_.in_own_process()) {
      refusal_ = Error(Code::kNotReady, "a forked child can't use its parent's engine");
      return;
    }
    std::lock_guard lock(state_.mutex);
    if (state_.closing) {
      refusal_ = Error(Code::kNotReady, "the engine is being closed");
    } else {
      ++state_.calls;
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (refusal_) return;
    std::lock_guard lock(state_.mutex);
    if (--state_.calls == 0) state_.idle.notify_all();
  }
  Result<void> admitted() const {
    if (refusal_) return fail(*refusal_);
    return {};
  }

 private:
  State& state_;
  std::optional<Error> refusal_;
};

}  // namespace

TransferEngine::TransferEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<TransferEngine>> TransferEngine::create(const TransferOptions& options) {
  MC_TRY(const net::Address listen, listen_address(options.local_name));
  auto state = std::make_unique<State>(options.memory_budget);
  MC_TRY(state->runtime, net::Runtime::start("mc-transfer"));
  const os::Env env = state->runtime->env();
  auto engine = os::run_blocking(env.executor, start_engine(env, options, listen));
  if (!engine) return fail(Code::kInternal, "the runtime has stopped");
  if (!*engine) return fail(std::move(*engine).error());
  state->engine = **std::move(engine);
  return std::unique_ptr<TransferEngine>(new TransferEngine(std::move(state)));
}

TransferEngine::~TransferEngine() {
  if (!state_->in_own_process()) {
    // Threads, sockets and pools are the parent's; taking anything down here would wait for threads
    // that a fork doesn't copy.
    static_cast<void>(state_.release());
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  os::run_blocking(state_->runtime->env().executor, state_->engine->stop());
  {
    std::unique_lock lock(state_->mutex);
    state_->idle.wait(lock, [this] { return state_->calls == 0; });
  }
  for (auto& [address, pool] : state_->pools)
    state_->preparer->remove(*pool);
  state_->engine.reset();
}

const std::string& TransferEngine::local_name() const { return state_->engine->name(); }
std::uint16_t TransferEngine::port() const { return state_->engine->address().port; }
transfer::Engine& TransferEngine::engine() { return *state_->engine; }
net::Runtime& TransferEngine::runtime() { return *state_->runtime; }

Result<void> TransferEngine::register_memory(void* address, std::uint64_t length,
                                             std::string_view location) {
  const Call call(*state_);
  MC_CHECK(call.admitted());
  MC_CHECK(state_->engine->register_memory(reinterpret_cast<std::uint64_t>(address), length,
                                           location, nullptr));
  return {};
}

Result<void> TransferEngine::unregister_memory(void* address, Milliseconds timeout) {
  const Call call(*state_);
  MC_CHECK(call.admitted());
  MC_TRY(auto removed, state_->engine->registry().remove(reinterpret_cast<std::uint64_t>(address)));
  // Most often nobody is there to be waited for.
  if (removed.accesses() == 0 && removed.is_clear()) {
    removed.retire();
    return {};
  }
  auto done = os::run_blocking(
      state_->runtime->env().executor,
      state_->engine->finish_unregister(std::move(removed), state_->deadline(timeout)));
  return done ? *std::move(done) : fail(Code::kNotReady);
}

Result<void*> TransferEngine::allocate_memory(std::uint64_t length) {
  const Call call(*state_);
  MC_CHECK(call.admitted());
  memory::Pool::Options options;
  options.size = length;
  options.name = "mooncake-buffer";
  options.budget = &state_->budget;
  MC_TRY(auto pool, memory::Pool::create(options));
  void* const address = pool->data();
  MC_CHECK(state_->engine->register_memory(reinterpret_cast<std::uint64_t>(address), length, "*",
                                           nullptr));
  state_->engine->registry().share_pool(*pool);
  state_->get_preparer().add(*pool, memory::kReadyFirst, {});
  std::lock_guard lock(state_->mutex);
  state_->pools.emplace(address, std::move(pool));
  return address;
}

Result<void> TransferEngine::free_memory(void* address) {
  {
    const Call call(*state_);
    MC_CHECK(call.admitted());
    std::lock_guard lock(state_->mutex);
    if (!state_->pools.contains(address)) {
      return fail(Code::kInvalidArgument, fmt::format("{} was not allocated here", address));
    }
  }
  MC_CHECK(unregister_memory(address));
  std::unique_ptr<memory::Pool> pool;
  {
    std::lock_guard lock(state_->mutex);
    auto taken = state_->pools.extract(address);
    if (taken) pool = std::move(taken.mapped());
  }
  if (!pool) return {};
  state_->engine->registry().unshare_pool(*pool);
  state_->get_preparer().remove(*pool);
  return {};
}

Result<SegmentHandle> TransferEngine::open_segment(std::string_view name, Milliseconds timeout) {
  const Call call(*state_);
  MC_CHECK(call.admitted());
  auto handle =
      os::run_blocking(state_->runtime->env().executor,
                       state_->engine->open_segment(std::string(name), state_->deadline(timeout)));
  return handle ? *std::move(handle) : fail(Code::kNotReady);
}

TransferOutcome TransferEngine::transfer(std::span<const TransferRequest> requests,
                                         Milliseconds timeout) {
  TransferOutcome outcome;
  const Call call(*state_);
  if (const auto admitted = call.admitted(); !admitted) {
    outcome.codes.assign(requests.size(), admitted.error().transfer_code());
    outcome.status = admitted;
    return outcome;
  }
  transfer::BlockingBatch batch(*state_->engine, requests);
  return batch.run(state_->runtime->env().executor, state_->deadline(timeout));
}

}  // namespace mooncake
