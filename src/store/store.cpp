// The blocking facade: one client (and in embedded mode one Master) on an engine's runtime.
#include "mooncake/store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "base/log.h"
#include "base/random.h"
#include "memory/pool.h"
#include "net/channel_pair.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "store/client/client.h"
#include "store/master/server.h"
#include "transfer/engine.h"

namespace mooncake {

namespace {

using base::Task;
using base::TimePoint;

constexpr std::string_view kEmbedded = "embedded";
constexpr std::uint16_t kDefaultMasterPort = 50051;
constexpr std::chrono::milliseconds kCloseTimeout{1500};
constexpr std::chrono::milliseconds kAskInterval{100};  // of StoreOptions::interrupted

Task<Result<std::unique_ptr<net::Channel>>> dial(os::Env env, net::Address to, TimePoint deadline) {
  co_return co_await env.network.connect(to, deadline);
}

Task<Result<std::unique_ptr<net::Channel>>> join_embedded(os::Env env,
                                                          store::master::MasterServer* master) {
  auto ends = net::make_channel_pair(env.executor);
  master->serve(std::move(ends.first));
  co_return std::move(ends.second);
}

Result<net::Address> master_address(const std::string& text) {
  Result<net::Address> address = net::parse_address(text, kDefaultMasterPort);
  if (address && address->port == 0) {
    address = fail(Code::kInvalidArgument, fmt::format("'{}': nobody is at port 0", text));
  }
  if (!address) return fail(std::move(address).error().with_context("master_server_address"));
  return address;
}

std::int32_t put_code(Code code) { return code == Code::kObjectExists ? 0 : code_info(code).store; }

}  // namespace

struct Store::State {
  StoreOptions options;
  std::unique_ptr<TransferEngine> own_engine;
  TransferEngine* engine = nullptr;
  std::unique_ptr<store::master::MasterServer> embedded;
  std::unique_ptr<store::Client> client;
  std::mutex closing;  // guards closed's change to true and what goes with it
  std::atomic<bool> closed{false};
  std::shared_mutex in_use;  // shared by calls under way: the engine stays until they have left
  const pid_t pid = ::getpid();

  os::Env env() { return engine->runtime().env(); }
  os::Executor& executor() { return env().executor; }
  TimePoint deadline() { return env().now() + options.timeout; }

  Task<Result<void>> start();
  Task<void> stop();
  Result<net::RpcClient::Connector> connector();
  std::vector<store::Located> locate_all(std::span<const std::string_view> keys);
  Result<std::uint64_t> remove_matching(std::string pattern, bool force);
  store::PutOutcome put(std::span<const PutItem> items, const ReplicateConfig& config, bool upsert);
  Result<void> put_one(std::string_view key, ConstBytes value, const ReplicateConfig& config,
                       bool upsert);
  std::vector<std::int32_t> put_batch(std::span<const PutItem> items, const ReplicateConfig& config,
                                      bool upsert);
  Result<std::vector<KeyReport>> why(std::span<const std::string_view> keys,
                                     std::size_t most_events);
  void explain_misses(std::span<const std::string_view> keys, std::vector<ItemOutcome>& outcomes);
  ItemOutcome unanswered(Code code) const;

  // Runs `ask(client, deadline)` on the executor and waits. `closed_answer` when there is no
  // client.
  template <typename T, typename Ask>
  T call(Ask ask, T closed_answer) {
    if (::getpid() != pid) return closed_answer;
    std::shared_lock staying(in_use);
    if (closed.load(std::memory_order_acquire)) return closed_answer;
    std::optional<T> answer = wait_for(ask_client<T>(this, &ask, deadline(), closed_answer));
    return answer ? std::move(*answer) : closed_answer;
  }

  template <typename T>
  std::optional<T> wait_for(Task<T> task) {
    if (!options.interrupted) return os::run_blocking(executor(), std::move(task));
    return os::run_blocking(executor(), std::move(task), kAskInterval, options.interrupted, [this] {
      if (newest_client != nullptr) newest_client->interrupt();
    });
  }

 private:
  store::Client* newest_client = nullptr;  // executor thread only; also while it still mounts

  template <typename T, typename Ask>
  static Task<T> ask_client(State* state, Ask* ask, TimePoint until, T closed_answer) {
    if (!state->client) co_return closed_answer;
    Task<T> asked = (*ask)(*state->client, until);
    co_return co_await asked;
  }
};

Result<net::RpcClient::Connector> Store::State::connector() {
  os::Env world = env();
  if (embedded) {
    store::master::MasterServer* master = embedded.get();
    return [world, master](TimePoint) { return join_embedded(world, master); };
  }
  MC_TRY(net::Address address, master_address(options.master_server_address));
  return [world, address](TimePoint deadline) { return dial(world, address, deadline); };
}

Task<Result<void>> Store::State::start() {
  os::Env world = env();
  if (options.master_server_address == kEmbedded) {
    store::master::ServerOptions server;
    server.identity = engine->engine().identity();
    server.identity.role = "master";
    auto master = store::master::MasterServer::create(world, std::move(server));
    if (!master) co_return fail(std::move(master).error().with_context("embedded Master"));
    embedded = std::move(*master);
  }
  auto connect = connector();
  if (!connect) co_return fail(std::move(connect).error());
  store::ClientOptions client_options;
  client_options.connect_to_master = std::move(*connect);
  client_options.master_name = options.master_server_address;
  client_options.identity = engine->engine().identity();
  client_options.identity.role = "client";
  client_options.host = engine->engine().address().host;
  client_options.id = static_cast<store::ClientId>(base::secure_random() | 1);
  client_options.segment_size = options.global_segment_size;
  client_options.budget = engine->engine().budget();
  client_options.preparer = &engine->preparer();
  client_options.on_created = [this](store::Client& created) { newest_client = &created; };
  const TimePoint until = deadline();
  auto started =
      co_await store::Client::start(world, engine->engine(), std::move(client_options), until);
  if (!started) newest_client = nullptr;
  if (!started) co_return fail(std::move(started).error());
  client = std::move(*started);
  co_return Result<void>();
}

Task<void> Store::State::stop() {
  if (client) co_await client->stop(env().now() + kCloseTimeout);
  newest_client = nullptr;
  client.reset();
  if (embedded) co_await embedded->stop();
  embedded.reset();
}

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}

Store::~Store() { close(); }

Result<std::unique_ptr<Store>> Store::create(const StoreOptions& options) {
  if (options.master_server_address != kEmbedded) {
    MC_CHECK(master_address(options.master_server_address));
  }
  if (options.global_segment_size != 0 && options.global_segment_size < 1024) {
    return fail(Code::kInvalidArgument,
                fmt::format("global_segment_size: {} is below 1024", options.global_segment_size));
  }
  auto state = std::make_unique<State>();
  state->options = options;
  if (options.engine != nullptr) {
    state->engine = options.engine;
  } else {
    TransferOptions transfer;
    transfer.local_name = options.local_name;
    transfer.metadata_server = options.metadata_server;
    transfer.cluster_secret = options.cluster_secret;
    transfer.serve = options.master_server_address != kEmbedded;
    MC_TRY(state->own_engine, TransferEngine::create(transfer));
    state->engine = state->own_engine.get();
  }
  auto started = state->wait_for(state->start());
  if (!started) return fail(Code::kNotReady, "the engine has been closed");
  if (!*started) {
    os::run_blocking(state->executor(), state->stop());
    return fail(std::move(*started).error());
  }
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

void Store::close() {
  if (!state_ || ::getpid() != state_->pid) return;
  std::lock_guard lock(state_->closing);
  if (state_->closed.exchange(true)) return;
  os::run_blocking(state_->executor(), state_->stop());
  std::unique_lock all_have_left(state_->in_use);
  state_->own_engine.reset();
}

const std::string& Store::local_name() const { return state_->engine->local_name(); }
TransferEngine& Store::engine() { return *state_->engine; }

namespace {

std::vector<std::int32_t> store_codes(const std::vector<Code>& codes) {
  std::vector<std::int32_t> out;
  out.reserve(codes.size());
  for (Code code : codes)
    out.push_back(code_info(code).store);
  return out;
}

template <typename Outcome>
std::vector<std::int64_t> sizes_or_codes(const std::vector<Outcome>& outcomes) {
  std::vector<std::int64_t> out;
  out.reserve(outcomes.size());
  for (const Outcome& outcome : outcomes) {
    out.push_back(outcome.code == Code::kOk ? static_cast<std::int64_t>(outcome.size)
                                            : code_info(outcome.code).store);
  }
  return out;
}

}  // namespace

std::vector<store::Located> Store::State::locate_all(std::span<const std::string_view> keys) {
  store::Located closed_answer;
  closed_answer.code = Code::kNotReady;
  return call<std::vector<store::Located>>(
      [&](store::Client& mounted, TimePoint until) { return mounted.locate_all(keys, until); },
      std::vector<store::Located>(keys.size(), closed_answer));
}

Result<std::uint64_t> Store::State::remove_matching(std::string pattern, bool force) {
  return call<Result<std::uint64_t>>(
      [&](store::Client& mounted, TimePoint) {
        return mounted.remove_matching(std::move(pattern), force, options.timeout);
      },
      fail(Code::kNotReady, "the store is closed"));
}

store::PutOutcome Store::State::put(std::span<const PutItem> items, const ReplicateConfig& config,
                                    bool upsert) {
  store::PutOptions how;
  how.config = config;
  how.upsert = upsert;
  store::PutOutcome closed_answer;
  closed_answer.codes.assign(items.size(), Code::kNotReady);
  return call<store::PutOutcome>(
      [&](store::Client& mounted, TimePoint until) { return mounted.put(items, how, until); },
      closed_answer);
}

Result<void> Store::State::put_one(std::string_view key, ConstBytes value,
                                   const ReplicateConfig& config, bool upsert) {
  const PutItem item{key, std::span(&value, 1)};
  const store::PutOutcome outcome = put(std::span(&item, 1), config, upsert);
  const Code code = outcome.codes.front();
  if (put_code(code) == 0) return {};
  std::string what = fmt::format("{} '{}'", upsert ? "upsert" : "put", key);
  const bool explained = code == Code::kNoSpace || code == Code::kInvalidArgument ||
                         code == Code::kBusy || code == Code::kUnreachable;
  if (explained && !outcome.why.empty()) what += ": " + outcome.why;
  return fail(code, std::move(what));
}

std::vector<std::int32_t> Store::State::put_batch(std::span<const PutItem> items,
                                                  const ReplicateConfig& config, bool upsert) {
  std::vector<std::int32_t> out;
  out.reserve(items.size());
  for (Code code : put(items, config, upsert).codes)
    out.push_back(put_code(code));
  return out;
}

std::vector<std::int32_t> Store::put_batch(std::span<const PutItem> items,
                                           const ReplicateConfig& config) {
  return state_->put_batch(items, config, false);
}
std::vector<std::int32_t> Store::upsert_batch(std::span<const PutItem> items,
                                              const ReplicateConfig& config) {
  return state_->put_batch(items, config, true);
}
Result<void> Store::put(std::string_view key, ConstBytes value, const ReplicateConfig& config) {
  return state_->put_one(key, value, config, false);
}
Result<void> Store::upsert(std::string_view key, ConstBytes value, const ReplicateConfig& config) {
  return state_->put_one(key, value, config, true);
}

Result<std::vector<std::byte>> Store::get(std::string_view key) {
  std::vector<std::byte> value;
  MC_CHECK(get(key, [&value](std::uint64_t size) {
    value.resize(size);
    return std::span(value);
  }));
  return value;
}

Result<std::uint64_t> Store::get(std::string_view key, const Allocate& allocate) {
  const auto outcomes = state_->call<std::vector<store::GetOutcome>>(
      [&](store::Client& client, TimePoint until) {
        return client.get(
            std::span(&key, 1),
            [&allocate](std::size_t, std::uint64_t size) { return allocate(size); }, until);
      },
      std::vector<store::GetOutcome>(1, store::GetOutcome{Code::kNotReady, 0}));
  if (outcomes.front().code != Code::kOk) {
    return fail(outcomes.front().code, fmt::format("get '{}'", key));
  }
  return outcomes.front().size;
}

Result<PinnedObject> Store::pin(std::string_view key) {
  auto pinned = state_->call<Result<transfer::PinnedBytes>>(
      [&](store::Client& client, TimePoint until) { return client.pin(key, until); },
      fail(Code::kNotReady, "the store is closed"));
  if (!pinned) return fail(std::move(pinned).error().with_context(fmt::format("pin '{}'", key)));
  return PinnedObject(pinned->bytes, std::move(pinned->hold));
}

std::vector<std::int64_t> Store::get_into_batch(std::span<const GetItem> items) {
  const auto outcomes = state_->call<std::vector<store::GetOutcome>>(
      [&](store::Client& client, TimePoint until) { return client.get(items, until); },
      std::vector<store::GetOutcome>(items.size(), store::GetOutcome{Code::kNotReady, 0}));
  return sizes_or_codes(outcomes);
}

Result<std::vector<KeyReport>> Store::State::why(std::span<const std::string_view> keys,
                                                 std::size_t most_events) {
  return call<Result<std::vector<KeyReport>>>(
      [&](store::Client& mounted, TimePoint until) {
        return mounted.why(keys, most_events, until);
      },
      fail(Code::kNotReady, "the store is closed"));
}

// Fills in why those that miss do; what can't be asked stays unexplained, and says so.
void Store::State::explain_misses(std::span<const std::string_view> keys,
                                  std::vector<ItemOutcome>& outcomes) {
  constexpr std::size_t kEventsToJudgeBy = 8;
  std::vector<std::size_t> missed;
  std::vector<std::string_view> asked;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (outcomes[i].code != Code::kObjectNotFound) continue;
    missed.push_back(i);
    asked.push_back(keys[i]);
  }
  if (missed.empty()) return;
  const Result<std::vector<KeyReport>> reports = why(asked, kEventsToJudgeBy);
  for (std::size_t m = 0; m < missed.size(); ++m) {
    ItemOutcome& outcome = outcomes[missed[m]];
    outcome.miss = MissReason::kUnexplained;
    outcome.detail = reports ? (*reports)[m].summary : reports.error().message();
    // By now it may be there.
    if (reports && (*reports)[m].state != KeyState::kPublished) outcome.miss = (*reports)[m].reason;
  }
}

// Of a key about which the Master did not answer.
ItemOutcome Store::State::unanswered(Code code) const {
  ItemOutcome outcome;
  outcome.code = code;
  outcome.detail = code_info(code).text;
  const bool wrong = code == Code::kNotReady || code == Code::kInvalidArgument;
  if (wrong || code == Code::kCancelled) return outcome;
  outcome.miss = MissReason::kMasterUnreachable;
  outcome.detail = fmt::format("Master {}: {}", options.master_server_address, outcome.detail);
  return outcome;
}

Result<KeyReport> Store::why(std::string_view key) {
  MC_TRY(std::vector<KeyReport> reports, state_->why(std::span(&key, 1), store::kMaxWhyEvents));
  return std::move(reports.front());
}

// Why an item can't be put under any config; empty when it can.
static std::string fault_of(const PutItem& item) {
  if (item.key.empty() || item.key.size() > store::kMaxKeyLength) {
    return fmt::format("a key of {} bytes, not within 1 to {}", item.key.size(),
                       store::kMaxKeyLength);
  }
  const auto is_empty = [](ConstBytes part) { return part.empty(); };
  return std::all_of(item.parts.begin(), item.parts.end(), is_empty) ? "the value is empty" : "";
}

std::vector<ItemOutcome> Store::put_outcomes(std::span<const PutItem> items,
                                             const ReplicateConfig& config) {
  const store::PutOutcome put = state_->put(items, config, false);
  std::vector<ItemOutcome> outcomes(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Code code = outcomes[i].code = put.codes[i];
    if (code == Code::kOk) continue;
    outcomes[i].detail = code_info(code).text;
    std::string why = code == Code::kInvalidArgument ? fault_of(items[i]) : std::string();
    const bool told = code == Code::kNoSpace || code_info(code).domain == Domain::kGeneral;
    if (why.empty() && told) why = put.why;
    if (!why.empty()) outcomes[i].detail += ": " + why;
  }
  return outcomes;
}

std::vector<ItemOutcome> Store::get_outcomes(std::span<const std::string_view> keys,
                                             const AllocateItem& allocate) {
  const auto got = state_->call<std::vector<store::GetOutcome>>(
      [&](store::Client& client, TimePoint until) { return client.get(keys, allocate, until); },
      std::vector<store::GetOutcome>(keys.size(), store::GetOutcome{Code::kNotReady}));
  std::vector<ItemOutcome> outcomes(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!got[i].answered) {
      outcomes[i] = state_->unanswered(got[i].code);
      continue;
    }
    outcomes[i].code = got[i].code;
    outcomes[i].size = got[i].size;
    if (got[i].code != Code::kOk) outcomes[i].detail = code_info(got[i].code).text;
  }
  state_->explain_misses(keys, outcomes);
  return outcomes;
}

std::vector<ItemOutcome> Store::exist_outcomes(std::span<const std::string_view> keys) {
  const std::vector<Code> codes = state_->call<std::vector<Code>>(
      [&](store::Client& client, TimePoint until) { return client.exist(keys, until); },
      std::vector<Code>(keys.size(), Code::kNotReady));
  std::vector<ItemOutcome> outcomes(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool answered = codes[i] == Code::kOk || codes[i] == Code::kObjectNotFound;
    if (!answered) outcomes[i] = state_->unanswered(codes[i]);
    outcomes[i].code = codes[i];
  }
  state_->explain_misses(keys, outcomes);
  return outcomes;
}

std::vector<std::int32_t> Store::exist_batch(std::span<const std::string_view> keys) {
  const std::vector<Code> codes = state_->call<std::vector<Code>>(
      [&](store::Client& client, TimePoint until) { return client.exist(keys, until); },
      std::vector<Code>(keys.size(), Code::kNotReady));
  std::vector<std::int32_t> out;
  out.reserve(codes.size());
  for (Code code : codes) {
    // That the Master can't be asked is a miss; that the question was wrong is not.
    const bool wrong = code == Code::kNotReady || code == Code::kInvalidArgument;
    out.push_back(code == Code::kOk ? 1 : wrong ? code_info(code).store : 0);
  }
  return out;
}

Result<std::uint64_t> Store::size(std::string_view key) {
  const store::Located located = state_->locate_all(std::span(&key, 1)).front();
  if (located.code != Code::kOk) return fail(located.code, fmt::format("size '{}'", key));
  return located.size;
}

std::vector<std::vector<ReplicaDescriptor>> Store::replicas_batch(
    std::span<const std::string_view> keys) {
  std::vector<std::vector<ReplicaDescriptor>> out;
  for (store::Located& located : state_->locate_all(keys))
    out.push_back(std::move(located.replicas));
  return out;
}

Result<std::uint64_t> Store::remove_by_regex(std::string_view pattern, bool force) {
  if (pattern.empty()) {
    return fail(Code::kInvalidArgument, "the pattern is empty; remove_all() removes everything");
  }
  return state_->remove_matching(std::string(pattern), force);
}

Result<std::uint64_t> Store::remove_all(bool force) {
  return state_->remove_matching(std::string(), force);
}

std::vector<std::int64_t> Store::size_batch(std::span<const std::string_view> keys) {
  return sizes_or_codes(state_->locate_all(keys));
}

std::vector<std::int32_t> Store::remove_batch(std::span<const std::string_view> keys, bool force) {
  return store_codes(state_->call<std::vector<Code>>(
      [&](store::Client& client, TimePoint until) { return client.remove(keys, force, until); },
      std::vector<Code>(keys.size(), Code::kNotReady)));
}

Result<void> Store::unmount_segment(std::chrono::milliseconds grace) {
  constexpr std::chrono::milliseconds kLongest{0xFFFFFFFF};
  if (grace.count() < 0 || grace > kLongest) {
    return fail(Code::kInvalidArgument,
                fmt::format("grace: {} ms is outside 0 to {} ms", grace.count(), kLongest.count()));
  }
  return state_->call<Result<void>>(
      [&](store::Client& client, TimePoint until) { return client.unmount_segment(grace, until); },
      fail(Code::kNotReady, "the store is closed"));
}

int Store::health() const {
  return state_->call<int>(
      [](store::Client& client, TimePoint) -> Task<int> { co_return client.healthy() ? 0 : 2; }, 1);
}

std::string Store::metrics() const {
  return state_->call<std::string>(
      [this](store::Client& client, TimePoint) -> Task<std::string> {
        co_return client.metrics().expose() + state_->engine->engine().metrics().expose();
      },
      std::string());
}

}  // namespace mooncake
