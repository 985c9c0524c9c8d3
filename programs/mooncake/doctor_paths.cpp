#include "doctor_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/say.h"
#include "mooncake/store.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"

namespace mooncake::doctor {

namespace {

constexpr std::size_t kSize = 4096;
constexpr std::chrono::seconds kTimeout{5};
constexpr std::chrono::seconds kTrialTime{30};  // of all that the other process does

// One transfer, over whatever way the engine takes.
struct Trial {
  std::string way;    // empty: none
  std::string error;  // then
  double microseconds = 0;
};

Trial try_once(TransferEngine& engine, SegmentHandle target, std::uint64_t there,
               std::vector<char>& mine) {
  TransferRequest request;
  request.opcode = Opcode::kRead;
  request.source = mine.data();
  request.target = target;
  request.target_offset = there;
  request.length = mine.size();
  Trial trial;
  const auto begin = std::chrono::steady_clock::now();
  const TransferOutcome outcome = engine.transfer({&request, 1}, kTimeout);
  const auto took = std::chrono::steady_clock::now() - begin;
  if (outcome.ok() && !outcome.bytes_by_path.empty()) {
    trial.way = outcome.bytes_by_path.begin()->first;
  } else if (!outcome.ok()) {
    trial.error = outcome.status.error().message();
  }
  trial.microseconds = std::chrono::duration<double, std::micro>(took).count();
  return trial;
}

// The second one: the first has opened the way.
Trial try_way(TransferEngine& engine, const std::string& peer, std::uint64_t there) {
  std::vector<char> mine(kSize);
  Trial trial;
  if (const auto known = engine.register_memory(mine.data(), mine.size()); !known) {
    trial.error = known.error().message();
    return trial;
  }
  if (const auto target = engine.open_segment(peer, kTimeout)) {
    try_once(engine, *target, there, mine);
    trial = try_once(engine, *target, there, mine);
  } else {
    trial.error = target.error().message();
  }
  static_cast<void>(engine.unregister_memory(mine.data()));
  return trial;
}

base::Task<std::vector<transfer::Engine::PathChoice>> ask_paths(transfer::Engine* engine,
                                                                SegmentHandle peer) {
  co_return engine->paths(peer);
}

// Why the engine shares no memory with this peer; empty when it does.
std::string why_not_shared(TransferEngine& engine, const std::string& peer) {
  const auto target = engine.open_segment(peer, kTimeout);
  if (!target) return target.error().message();
  const auto choices =
      os::run_blocking(engine.runtime().env().executor, ask_paths(&engine.engine(), *target));
  for (const auto& choice : choices.value_or(std::vector<transfer::Engine::PathChoice>())) {
    if (choice.transport == "shm" && !choice.usable) return choice.reason;
    if (choice.transport == "shm") return "";
  }
  return "sockets only are asked for (MC_FORCE_TCP)";
}

Path tried(const char* transport, const Trial& trial, const std::string& why_not) {
  if (trial.way == transport) {
    return {transport, true, fmt::format("4 KiB read in {:.0f} us", trial.microseconds)};
  }
  return {transport, false, trial.error.empty() ? why_not : trial.error};
}

// Usable ones in the order in which they are preferred, then the others.
MemoryPaths ranked(std::string memory, std::vector<Path> paths) {
  std::stable_partition(paths.begin(), paths.end(), [](const Path& path) { return path.usable; });
  return {std::move(memory), std::move(paths)};
}

nlohmann::json to_json(const Trial& trial) {
  return {{"way", trial.way}, {"error", trial.error}, {"us", trial.microseconds}};
}

Trial trial_from(const nlohmann::json& told) {
  return {told.at("way"), told.at("error"), told.at("us")};
}

// All that the other process has found out.
struct Trials {
  Trial mapped, copied, by_ring, by_unix, sent;
  std::string unshared;
};

Result<Trials> parse_trials(const std::string& line) {
  try {
    const auto told = nlohmann::json::parse(line);
    return Trials{trial_from(told.at("mapped")), trial_from(told.at("copied")),
                  trial_from(told.at("ring")),   trial_from(told.at("unix")),
                  trial_from(told.at("sent")),   told.at("unshared")};
  } catch (const nlohmann::json::exception&) {
    return fail(Code::kProtocolError, "doctor-peer said '" + line + "'");
  }
}

Result<Trials> ask_other_process(demo::Cluster& cluster, const Offered& offered) {
  demo::ProgramSpec spec;
  spec.name = "doctor-peer";
  spec.path = "/proc/self/exe";
  spec.arguments = {"doctor-peer", offered.name, std::to_string(offered.pool),
                    std::to_string(offered.plain)};
  MC_TRY(const std::size_t child, cluster.spawn(spec));
  const demo::Time until = std::chrono::steady_clock::now() + kTrialTime;
  for (;;) {
    MC_TRY(const auto events, cluster.wait(until));
    for (const auto& [from, line] : events.lines)
      return parse_trials(line);
    if (!events.ended.empty()) return fail(Code::kNotReady, cluster.obituary(child));
    if (events.signal != 0) return fail(Code::kCancelled, "interrupted");
    if (events.empty()) return fail(Code::kDeadlineExceeded, "doctor-peer says nothing");
  }
}

Result<Trials> try_all(const Result<std::unique_ptr<demo::Cluster>>& cluster,
                       TransferEngine& engine) {
  if (!cluster) return fail(cluster.error());
  MC_TRY(void* const pool, engine.allocate_memory(kSize));
  std::vector<char> plain(kSize);
  MC_CHECK(engine.register_memory(plain.data(), plain.size()));
  Offered offered;
  offered.name = engine.local_name();
  offered.pool = reinterpret_cast<std::uintptr_t>(pool);
  offered.plain = reinterpret_cast<std::uintptr_t>(plain.data());
  auto told = ask_other_process(**cluster, offered);
  (*cluster)->kill_all();  // it touches nothing any more
  MC_CHECK(engine.unregister_memory(plain.data()));
  MC_CHECK(engine.free_memory(pool));
  return told;
}

Result<std::unique_ptr<TransferEngine>> open_engine(const char* path) {
  SettingInputs inputs;
  inputs.environment = process_environment(store_settings());
  MC_TRY(const Settings settings, Settings::resolve(store_settings(), inputs));
  TransferOptions options;
  options.cluster_secret = settings.text("cluster_secret");
  options.path = path;
  return TransferEngine::create(options);
}

Trial try_path(const char* path, const Offered& offered) {
  const auto engine = open_engine(path);
  if (engine) return try_way(**engine, offered.name, offered.plain);
  Trial trial;
  trial.error = engine.error().message();
  return trial;
}

}  // namespace

int peer_command(const Offered& offered) {
  Trials trials;
  if (const auto best = open_engine("auto")) {
    trials.mapped = try_way(**best, offered.name, offered.pool);
    trials.copied = try_way(**best, offered.name, offered.plain);
    trials.unshared = why_not_shared(**best, offered.name);
  } else {
    trials.mapped.error = trials.copied.error = best.error().message();
  }
  trials.by_ring = try_path("ring", offered);
  trials.by_unix = try_path("unix", offered);
  trials.sent = try_path("tcp", offered);
  const nlohmann::json told = {
      {"mapped", to_json(trials.mapped)}, {"copied", to_json(trials.copied)},
      {"ring", to_json(trials.by_ring)},  {"unix", to_json(trials.by_unix)},
      {"sent", to_json(trials.sent)},     {"unshared", trials.unshared}};
  program::say(stdout, "{}\n", told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

std::vector<MemoryPaths> look_at_paths(const Result<std::unique_ptr<demo::Cluster>>& cluster,
                                       TransferEngine& engine) {
  Result<Trials> told = try_all(cluster, engine);
  if (!told) {
    Trials none;
    for (Trial* trial : {&none.mapped, &none.copied, &none.by_ring, &none.by_unix, &none.sent})
      trial->error = told.error().message();
    told = std::move(none);
  }
  const std::string& unshared = told->unshared;
  const Path by_mapping =
      tried("shm", told->mapped, unshared.empty() ? "its pool could not be mapped" : unshared);
  const Path by_kernel =
      tried("process_vm", told->copied,
            unshared.empty() ? "the kernel refuses it (see Yama ptrace_scope)" : unshared);
  const Path by_ring = tried("ring", told->by_ring, unshared);
  const Path by_unix = tried("unix", told->by_unix, unshared);
  const Path by_socket = tried("tcp", told->sent, "no connection");
  const Path no_mapping{"shm", false, "only memory of pools is mapped"};
  const char* const elsewhere = "it is on another host";
  Path over_network = by_socket;
  if (over_network.usable)
    over_network.reason = "works over loopback; name a --peer to try another host";
  return {ranked("memory of a pool, on this host",
                 {by_mapping, by_kernel, by_ring, by_unix, by_socket}),
          ranked("any other memory, on this host",
                 {by_kernel, by_ring, by_unix, by_socket, no_mapping}),
          ranked("memory on another host",
                 {over_network, {"shm", false, elsewhere}, {"process_vm", false, elsewhere}})};
}

}  // namespace mooncake::doctor
