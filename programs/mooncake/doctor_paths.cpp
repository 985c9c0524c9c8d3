#include "doctor_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <sstream>
#include <utility>

#include "common/program.h"
#include "mooncake/store.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"

namespace mooncake::doctor {

namespace {

constexpr std::size_t kSize = 4096;
constexpr std::chrono::seconds kTimeout{5};
constexpr std::chrono::seconds kStartTime{10};

// One transfer of each, over whatever way the engine takes.
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

// What the engine says of shared memory to this peer, when it does not use it.
std::string why_not_shared(TransferEngine& engine, const std::string& peer) {
  const auto target = engine.open_segment(peer, kTimeout);
  if (!target) return target.error().message();
  const auto choices =
      os::run_blocking(engine.runtime().env().executor, ask_paths(&engine.engine(), *target));
  for (const auto& choice : choices.value_or(std::vector<transfer::Engine::PathChoice>())) {
    if (choice.transport == "shm" && !choice.usable) return choice.reason;
    if (choice.transport == "shm") return "the kernel refuses it";
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

}  // namespace

int peer_command() {
  const program::EndSignals ends;
  SettingInputs inputs;
  inputs.environment = process_environment(store_settings());
  const auto settings = Settings::resolve(store_settings(), inputs);
  TransferOptions options;
  if (settings) options.cluster_secret = settings->text("cluster_secret");
  const auto engine = TransferEngine::create(options);
  if (!engine) return program::kExitFailed;
  const auto pool = (*engine)->allocate_memory(kSize);
  std::vector<char> plain(kSize);
  if (!pool || !(*engine)->register_memory(plain.data(), plain.size())) {
    return program::kExitFailed;
  }
  fmt::print("{} {} {}\n", (*engine)->local_name(), reinterpret_cast<std::uintptr_t>(*pool),
             reinterpret_cast<std::uintptr_t>(plain.data()));
  std::fflush(stdout);
  ends.wait();
  return 0;
}

Result<TestPeer> TestPeer::start() {
  TestPeer peer;
  MC_TRY(peer.cluster_, demo::Cluster::create());
  demo::ProgramSpec spec;
  spec.name = "doctor-peer";
  spec.path = "/proc/self/exe";
  spec.arguments = {"doctor-peer"};
  MC_TRY(const std::size_t child, peer.cluster_->spawn(spec));
  const demo::Time until = std::chrono::steady_clock::now() + kStartTime;
  for (;;) {
    MC_TRY(const auto events, peer.cluster_->wait(until));
    for (const auto& [from, line] : events.lines) {
      std::istringstream words(line);
      if (words >> peer.name_ >> peer.pool_ >> peer.plain_) return peer;
    }
    if (!events.ended.empty()) return fail(Code::kNotReady, peer.cluster_->obituary(child));
    if (events.signal != 0) return fail(Code::kCancelled, "interrupted");
    if (events.empty()) return fail(Code::kDeadlineExceeded, "doctor-peer does not start");
  }
}

std::vector<MemoryPaths> look_at_paths(const Result<TestPeer>& peer, TransferEngine& engine,
                                       const TransferOptions& options) {
  Trial mapped, copied, sent;
  std::string unshared;
  TransferOptions tcp = options;
  tcp.path = "tcp";
  const auto sockets = peer ? TransferEngine::create(tcp) : fail(peer.error());
  if (peer && sockets) {
    mapped = try_way(engine, peer->name(), peer->pool());
    copied = try_way(engine, peer->name(), peer->plain());
    unshared = why_not_shared(engine, peer->name());
    sent = try_way(**sockets, peer->name(), peer->plain());
  } else {
    mapped.error = copied.error = sent.error = sockets.error().message();
  }
  const Path by_mapping = tried("shm", mapped, unshared);
  const Path by_kernel = tried("process_vm", copied, unshared);
  const Path by_socket = tried("tcp", sent, "no connection");
  const Path no_mapping{"shm", false, "only memory of pools is mapped"};
  const char* const elsewhere = "it is on another host";
  return {ranked("memory of a pool, on this host", {by_mapping, by_kernel, by_socket}),
          ranked("any other memory, on this host", {by_kernel, by_socket, no_mapping}),
          ranked("memory on another host",
                 {by_socket, {"shm", false, elsewhere}, {"process_vm", false, elsewhere}})};
}

}  // namespace mooncake::doctor
