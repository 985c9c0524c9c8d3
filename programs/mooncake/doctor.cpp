#include "doctor.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "memory/pool.h"
#include "mooncake/store.h"
#include "net/address.h"
#include "net/network.h"
#include "net/rpc.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"

namespace mooncake::doctor {

namespace {

using base::TimePoint;

struct Finding {
  std::string name;
  std::string value;
  std::string advice;  // empty = fine
};

struct Path {
  std::string transport;
  bool usable = false;
  std::string reason;
};
struct Peer {
  std::string name;
  std::string state;  // "reachable", or why not
  bool ok = false;
  std::vector<Path> paths;
};

struct Report {
  std::vector<Settings::Row> settings;
  std::vector<Finding> machine;
  std::vector<Peer> peers;
  bool healthy = true;
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<std::uint64_t> meminfo(std::string_view field) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size() + 1));
    std::uint64_t kib = 0;
    if (words >> kib) return kib;
  }
  return std::nullopt;
}

Finding shared_memory() {
  Finding finding{"shared memory", "", ""};
  memory::Pool::Options options;
  options.size = 4u << 20;
  options.name = "mooncake doctor";
  Result<std::unique_ptr<memory::Pool>> pool = memory::Pool::create(options);
  if (!pool) {
    finding.value = pool.error().message();
    finding.advice = "pools need memfd_create(2) with sealing; allow it in the sandbox profile";
    return finding;
  }
  (*pool)->prepare((*pool)->size());
  const auto backing = (*pool)->backing();
  finding.value = backing == memory::PageBacking::kReservedHuge ? "memfd, reserved huge pages"
                  : backing == memory::PageBacking::kCollapsedHuge
                      ? "memfd, 2 MiB pages by collapse"
                      : "memfd, 4 KiB pages";
  if (backing == memory::PageBacking::kSmall) {
    finding.advice = "a kernel from 6.1 on collapses pool memory into huge pages by itself";
  }
  return finding;
}

std::vector<Finding> look_at_machine() {
  std::vector<Finding> findings;
  findings.push_back({"kernel", first_line("/proc/sys/kernel/osrelease"), ""});
  findings.push_back({"cores", fmt::format("{}", sysconf(_SC_NPROCESSORS_ONLN)), ""});
  const std::uint64_t available = meminfo("MemAvailable").value_or(0) * 1024;
  findings.push_back({"memory available",
                      fmt::format("{:.1f} GiB", static_cast<double>(available) / (1u << 30)),
                      available < (1u << 30) ? "less than 1 GiB is left for pools" : ""});
  findings.push_back(shared_memory());
  const std::uint64_t huge = meminfo("HugePages_Free").value_or(0);
  findings.push_back({"reserved huge pages free", fmt::format("{}", huge), ""});
  findings.push_back({"huge pages for shared memory",
                      first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"), ""});
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  findings.push_back(
      {"open files limit", fmt::format("{}", files.rlim_cur),
       files.rlim_cur < 4096 ? "raise it (ulimit -n 65536): each connection is one" : ""});
  findings.push_back({"client ports", first_line("/proc/sys/net/ipv4/ip_local_port_range"), ""});
  return findings;
}

// Asks the Master with an empty question, so that secret and versions are tried as a client would.
base::Task<Result<void>> ask_master(os::Env env, net::Address address, std::string secret,
                                    TimePoint deadline) {
  net::RpcClient::Options options;
  options.identity.role = "doctor";
  options.identity.name = "doctor";
  options.identity.boot_id = base::boot_id();
  options.identity.incarnation = env.random.incarnation();
  options.identity.cluster_secret = std::move(secret);
  auto rpc = net::RpcClient::create(env, address, std::move(options));
  net::CallOptions call;
  call.deadline = deadline;
  const net::Bytes nothing;
  Result<net::Reply> reply = co_await rpc->call(net::Method::kExist, nothing, call);
  co_await rpc->stop();
  // An empty question is refused, by a Master that has understood who asks.
  if (!reply && reply.error().code() != Code::kProtocolError &&
      reply.error().code() != Code::kInvalidArgument) {
    co_return fail(std::move(reply).error());
  }
  co_return Result<void>();
}

Peer look_at_master(net::Runtime& runtime, const std::string& name, const std::string& secret,
                    int timeout_ms) {
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

void print_text(const Report& report) {
  fmt::print("Settings\n");
  for (const Settings::Row& row : report.settings) {
    fmt::print("  {:<22} {:<28} {}\n", row.name, row.value.empty() ? "-" : row.value,
               to_string(row.source));
  }
  fmt::print("\nMachine\n");
  for (const Finding& finding : report.machine) {
    fmt::print("  {:<30} {}\n", finding.name, finding.value);
    if (!finding.advice.empty()) fmt::print("  {:<30} -> {}\n", "", finding.advice);
  }
  fmt::print("\nPeers\n");
  for (const Peer& peer : report.peers) {
    fmt::print("  {:<30} {}{}\n", peer.name, peer.ok ? "" : "FAILS: ", peer.state);
    for (std::size_t i = 0; i < peer.paths.size(); ++i) {
      const Path& path = peer.paths[i];
      fmt::print("    {}. {:<12} {}{}\n", i + 1, path.transport,
                 path.usable ? "" : "not usable: ", path.reason);
    }
  }
}

void print_json(const Report& report) {
  nlohmann::json out;
  for (const Settings::Row& row : report.settings) {
    out["settings"][std::string(row.name)] = {{"value", row.value},
                                              {"source", std::string(to_string(row.source))}};
  }
  for (const Finding& finding : report.machine) {
    out["machine"][finding.name] = {{"value", finding.value}, {"advice", finding.advice}};
  }
  out["peers"] = nlohmann::json::array();
  for (const Peer& peer : report.peers) {
    nlohmann::json paths = nlohmann::json::array();
    for (const Path& path : peer.paths) {
      paths.push_back(
          {{"transport", path.transport}, {"usable", path.usable}, {"reason", path.reason}});
    }
    out["peers"].push_back(
        {{"name", peer.name}, {"ok", peer.ok}, {"state", peer.state}, {"paths", paths}});
  }
  out["healthy"] = report.healthy;
  fmt::print("{}\n", out.dump(2));
}

}  // namespace

int run(const Options& options) {
  SettingInputs inputs;
  inputs.environment = process_environment(store_settings());
  if (!options.master.empty()) inputs.arguments["master_server_addr"] = options.master;
  Result<Settings> settings = Settings::resolve(store_settings(), inputs);
  if (!settings) {
    fmt::print(stderr, "mooncake doctor: {}\n", settings.error().message());
    return 1;
  }
  Report report;
  report.settings = settings->rows();
  for (Settings::Row& row : report.settings) {
    if (row.name == "cluster_secret" && !row.value.empty()) row.value = "(set)";
  }
  report.machine = look_at_machine();

  TransferOptions transfer;
  transfer.cluster_secret = settings->text("cluster_secret");
  Result<std::unique_ptr<TransferEngine>> engine = TransferEngine::create(transfer);
  if (!engine) {
    fmt::print(stderr, "mooncake doctor: no engine can be started: {}\n", engine.error().message());
    return 1;
  }
  report.peers.push_back(look_at_master((*engine)->runtime(), settings->text("master_server_addr"),
                                        transfer.cluster_secret, options.timeout_ms));
  Peer self = look_at_peer(**engine, (*engine)->local_name(), options.timeout_ms);
  self.name = "this process";
  report.peers.push_back(std::move(self));
  for (const std::string& peer : options.peers) {
    report.peers.push_back(look_at_peer(**engine, peer, options.timeout_ms));
  }
  report.healthy = std::all_of(report.peers.begin(), report.peers.end(),
                               [](const Peer& peer) { return peer.ok; });
  if (options.json) {
    print_json(report);
  } else {
    print_text(report);
  }
  return report.healthy ? 0 : 1;
}

}  // namespace mooncake::doctor
