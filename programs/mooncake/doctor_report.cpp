#include "doctor_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/say.h"

namespace mooncake::doctor {

namespace {

void print_findings(const char* title, const std::vector<Finding>& findings) {
  program::say(stdout, "\n{}\n", title);
  for (const Finding& finding : findings) {
    program::say(stdout, "  {:<30} {}\n", finding.name, finding.value);
    if (!finding.advice.empty()) program::say(stdout, "  {:<30} -> {}\n", "", finding.advice);
  }
}

// The usable ones have a rank.
void print_paths(const std::vector<Path>& paths) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Path& path = paths[i];
    const std::string rank = path.usable ? fmt::format("{}.", i + 1) : "-";
    program::say(stdout, "    {:<2} {:<12} {}{}\n", rank, path.transport,
                 path.usable ? "" : "not usable: ", path.reason);
  }
}

nlohmann::json to_json(const std::vector<Finding>& findings) {
  nlohmann::json out = nlohmann::json::object();
  for (const Finding& finding : findings)
    out[finding.name] = {{"value", finding.value}, {"advice", finding.advice}};
  return out;
}

nlohmann::json to_json(const std::vector<Path>& paths) {
  nlohmann::json out = nlohmann::json::array();
  for (const Path& path : paths) {
    out.push_back(
        {{"transport", path.transport}, {"usable", path.usable}, {"reason", path.reason}});
  }
  return out;
}

}  // namespace

void print_text(const Report& report) {
  program::say(stdout, "Settings\n");
  for (const Settings::Row& row : report.settings) {
    program::say(stdout, "  {:<22} {:<28} {}\n", row.name, row.value.empty() ? "-" : row.value,
                 to_string(row.source));
  }
  print_findings("Machine", report.machine);
  print_findings("Shared memory between processes", report.shared_memory);
  program::say(stdout, "\nPaths, tried with another process\n");
  for (const MemoryPaths& each : report.paths) {
    program::say(stdout, "  {}\n", each.memory);
    print_paths(each.paths);
  }
  program::say(stdout, "\nPeers\n");
  for (const Peer& peer : report.peers) {
    program::say(stdout, "  {:<30} {}{}\n", peer.name, peer.ok ? "" : "FAILS: ", peer.state);
    print_paths(peer.paths);
  }
}

void print_json(const Report& report) {
  nlohmann::json out;
  for (const Settings::Row& row : report.settings) {
    out["settings"][std::string(row.name)] = {{"value", row.value},
                                              {"source", std::string(to_string(row.source))}};
  }
  out["machine"] = to_json(report.machine);
  out["shared_memory"] = to_json(report.shared_memory);
  out["paths"] = nlohmann::json::array();
  for (const MemoryPaths& each : report.paths)
    out["paths"].push_back({{"memory", each.memory}, {"paths", to_json(each.paths)}});
  out["peers"] = nlohmann::json::array();
  for (const Peer& peer : report.peers) {
    out["peers"].push_back({{"name", peer.name},
                            {"ok", peer.ok},
                            {"state", peer.state},
                            {"paths", to_json(peer.paths)}});
  }
  out["healthy"] = report.healthy;
  program::say(stdout, "{}\n", out.dump(2));
}

}  // namespace mooncake::doctor
