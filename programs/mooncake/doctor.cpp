#include "doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/say.h"
#include "doctor_machine.h"
#include "doctor_paths.h"
#include "doctor_report.h"
#include "mooncake/store.h"
#include "net/address.h"
#include "net/network.h"
#include "net/runtime.h"
#include "one_call.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"
#include "transfer/settings.h"

namespace mooncake::doctor {

namespace {

using base::TimePoint;

// Asks the Master with an empty question, so that secret and versions are tried as a client would.
base::Task<Result<void>> ask_master(os::Env env, net::Address address, std::string secret,
                                    TimePoint deadline) {
  Result<net::Reply> reply = co_await call_once(
      env, std::move(address), "doctor", std::move(secret), net::Method::kExist, {}, deadline);
  // An empty question is refused, by a Master that has understood who asks.
  if (!reply && reply.error().code() != Code::kProtocolError &&
      reply.error().code() != Code::kInvalidArgument) {
    co_return fail(std::move(reply).error());
  }
  co_return Result<void>();
}

// `asked_for`: somebody has named it; else nothing is wrong when there is none.
Peer look_at_master(net::Runtime& runtime, const std::string& name, bool asked_for,
                    const std::string& secret, int timeout_ms) {
  Peer peer{"Master " + name, "", false, {}};
  if (name == "embedded") return {"Master (embedded)", "in this process when set up", true, {}};
  Result<net::Address> address = net::parse_address(name, 50051);
  if (!address) {
    peer.state = address.error().message();
    return peer;
  }
  const os::Env env = runtime.env();
  const TimePoint deadline = env.now() + std::chrono::milliseconds(timeout_ms);
  auto answer = os::run_blocking(env.executor, ask_master(env, *address, secret, deadline));
  peer.ok = answer && *answer;
  peer.state = peer.ok ? "answers" : answer ? answer->error().message() : "the reactor stopped";
  if (!peer.ok && !asked_for) {
    peer.ok = true;
    peer.state = "none here (start mooncake_master, or name one with --master)";
  }
  return peer;
}

base::Task<std::vector<transfer::Engine::PathChoice>> ask_paths(transfer::Engine* engine,
                                                                SegmentHandle peer) {
  co_return engine->paths(peer);
}

Peer look_at_peer(TransferEngine& engine, const std::string& name, int timeout_ms) {
  Peer peer{name, "", false, {}};
  Result<SegmentHandle> handle = engine.open_segment(name, std::chrono::milliseconds(timeout_ms));
  if (!handle) {
    peer.state = handle.error().message();
    return peer;
  }
  peer.ok = true;
  peer.state = "reachable";
  auto paths =
      os::run_blocking(engine.runtime().env().executor, ask_paths(&engine.engine(), *handle));
  for (const auto& path : paths.value_or(std::vector<transfer::Engine::PathChoice>())) {
    peer.paths.push_back({std::string(path.transport), path.usable, path.reason});
  }
  return peer;
}

}  // namespace

int run(const Options& options) {
  SettingInputs inputs;
  inputs.environment = process_environment(store_settings());
  if (!options.master.empty()) inputs.arguments["master_server_addr"] = options.master;
  Result<Settings> settings = Settings::resolve(store_settings(), inputs);
  if (!settings) {
    program::say(stderr, "mooncake doctor: {}\n", settings.error().message());
    return 1;
  }
  SettingInputs of_engine;
  of_engine.environment = process_environment(transfer::transfer_settings());
  Result<Settings> engine_settings = Settings::resolve(transfer::transfer_settings(), of_engine);
  if (!engine_settings) {
    program::say(stderr, "mooncake doctor: {}\n", engine_settings.error().message());
    return 1;
  }
  Report report;
  report.settings = settings->rows();
  for (Settings::Row& row : engine_settings->rows())
    report.settings.push_back(std::move(row));
  for (Settings::Row& row : report.settings) {
    if (row.name == "cluster_secret" && !row.value.empty()) row.value = "(set)";
  }
  // Before there are threads, which then leave its signals alone.
  const auto cluster = demo::Cluster::create();
  report.machine = look_at_machine();
  report.shared_memory = look_at_shared_memory();

  TransferOptions transfer;
  transfer.cluster_secret = settings->text("cluster_secret");
  const auto begun = std::chrono::steady_clock::now();
  Result<std::unique_ptr<TransferEngine>> engine = TransferEngine::create(transfer);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begun;
  if (!engine) {
    program::say(stderr, "mooncake doctor: no engine can be started: {}\n",
                 engine.error().message());
    return 1;
  }
  report.machine.push_back({"engine start", fmt::format("{:.1f} ms", taken.count()), ""});
  report.paths = look_at_paths(cluster, **engine);
  const bool master_is_named = settings->source("master_server_addr") != SettingSource::kDefault;
  report.peers.push_back(look_at_master((*engine)->runtime(), settings->text("master_server_addr"),
                                        master_is_named, transfer.cluster_secret,
                                        options.timeout_ms));
  Peer self = look_at_peer(**engine, (*engine)->local_name(), options.timeout_ms);
  self.name = "this process";
  report.peers.push_back(std::move(self));
  for (const std::string& peer : options.peers) {
    report.peers.push_back(look_at_peer(**engine, peer, options.timeout_ms));
  }
  report.healthy = std::all_of(report.peers.begin(), report.peers.end(),
                               [](const Peer& peer) { return peer.ok; }) &&
                   std::all_of(report.paths.begin(), report.paths.end(), [](const auto& each) {
                     return !each.paths.empty() && each.paths.front().usable;
                   });
  if (options.json) {
    print_json(report);
  } else {
    print_text(report);
  }
  return report.healthy ? 0 : 1;
}

}  // namespace mooncake::doctor
