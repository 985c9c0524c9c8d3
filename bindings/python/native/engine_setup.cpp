#include "native/engine_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "mooncake/config.h"
#include "transfer/protocols.h"

namespace mooncake::python {

namespace {

constexpr std::string_view kP2p = "P2PHANDSHAKE";
constexpr std::chrono::seconds kShortestTimeout{5};

constexpr Setting kSettings[] = {
    {.name = "local_hostname",
     .type = SettingType::kAddress,
     .fallback = "127.0.0.1",
     .help = "host, or host:port, under which peers find this engine"},
    {.name = "metadata_server",
     .type = SettingType::kText,
     .fallback = kP2p,
     .help = "P2PHANDSHAKE or http://host:port/metadata"},
    {.name = "protocol",
     .type = SettingType::kChoice,
     .fallback = "tcp",
     .help = "tcp and rdma choose the best path there is",
     .allowed = transfer::kProtocols},
    {.name = "transfer_timeout",
     .type = SettingType::kDuration,
     .fallback = "30s",
     .help = "deadline of a transfer, at least 5s; each byte adds a nanosecond",
     .unit = "s",
     .minimum = 0,
     .maximum = 86400,
     .env = "MC_TRANSFER_TIMEOUT"},
    {.name = "legacy_rpc_port_binding",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "binds the port of local_hostname with P2PHANDSHAKE too",
     .env = "MC_LEGACY_RPC_PORT_BINDING"},
    {.name = "log_level",
     .type = SettingType::kChoice,
     .fallback = "WARNING",
     .help = "least severe lines that are written to stderr, of this process",
     .allowed = "TRACE|INFO|WARNING|ERROR",
     .env = "MC_LOG_LEVEL"},
    {.name = "log_dir",
     .type = SettingType::kText,
     .fallback = "",
     .help = "folder of log files; lines go to stderr",
     .env = "MC_LOG_DIR",
     .support = Support::kAcceptedIgnored},
    {.name = "cluster_secret",
     .type = SettingType::kText,
     .fallback = "",
     .help = "what both sides of a connection must know",
     .env = "MOONCAKE_CLUSTER_SECRET"},
};

// The connection string of initialize_ext(): a server, and the kind that it is of.
std::string metadata_url(const EngineTexts& given) {
  const std::string& server = given.metadata_server;
  const std::string& type = given.metadata_type;
  if (server == kP2p || type == kP2p || type == "p2p") return std::string(kP2p);
  if (server.empty() || type.empty() || server.find("://") != std::string::npos) return server;
  return type + "://" + server;
}

Result<std::string> metadata_server_of(const EngineTexts& given) {
  std::string url = metadata_url(given);
  if (url == kP2p || url.starts_with("http://") || url.starts_with("memory://")) return url;
  const std::string type =
      given.metadata_type.empty() ? "" : " of type " + base::quote(given.metadata_type);
  return fail(Code::kInvalidArgument, fmt::format("metadata_server: {}{} is not P2PHANDSHAKE or "
                                                  "http://host:port/metadata",
                                                  base::quote(given.metadata_server), type));
}

// An IPv6 address without brackets is all address, unless it has a scope.
bool is_bare_literal(const std::string& address) {
  return !address.starts_with('[') && address.find('%') == std::string::npos &&
         std::count(address.begin(), address.end(), ':') > 1;
}

// In front of the port, with the brackets of an IPv6 literal.
std::string host_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.find(']', colon) != std::string::npos) return address;
  return is_bare_literal(address) ? address : address.substr(0, colon);
}

// Of a process that says nothing of it, its host decides.
void apply_log_level(const Settings& settings) {
  using base::LogLevel;
  if (settings.source("log_level") == SettingSource::kDefault) return;
  const std::string& level = settings.text("log_level");
  base::set_log_level(level == "TRACE"     ? LogLevel::kDebug
                      : level == "INFO"    ? LogLevel::kInfo
                      : level == "WARNING" ? LogLevel::kWarning
                                           : LogLevel::kError);
}

}  // namespace

Result<EnginePlan> plan_engine(const EngineTexts& given) {
  if (given.local_hostname.empty()) {
    return fail(Code::kInvalidArgument, "local_hostname: must be given");
  }
  MC_TRY(const std::string server, metadata_server_of(given));
  SettingInputs inputs;
  inputs.environment = process_environment(kSettings);
  inputs.arguments = {{"local_hostname", given.local_hostname},
                      {"metadata_server", server},
                      {"protocol", given.protocol.empty() ? "tcp" : given.protocol}};
  MC_TRY(const Settings settings, Settings::resolve(kSettings, inputs));
  EnginePlan plan;
  plan.notices = settings.notices();
  MC_TRY(std::string notice, transfer::check_protocol(settings.text("protocol")));
  if (!notice.empty()) {
    if (!given.device_name.empty()) notice += "; '" + given.device_name + "' isn't used";
    plan.notices.push_back(std::move(notice));
  }
  // With P2PHANDSHAKE callers use the port that they name for themselves.
  const bool bind_port = server != kP2p || settings.boolean("legacy_rpc_port_binding");
  const std::string& name = settings.text("local_hostname");
  if (is_bare_literal(name)) {
    plan.notices.push_back(fmt::format(
        "local_hostname: '{}' has no brackets; with its port it is named '[{}]:port'", name, name));
  }
  plan.options.local_name = bind_port ? name : host_of(name);
  plan.options.metadata_server = server;
  plan.options.cluster_secret = settings.text("cluster_secret");
  plan.timeout =
      std::max<std::chrono::milliseconds>(settings.duration("transfer_timeout"), kShortestTimeout);
  apply_log_level(settings);
  return plan;
}

}  // namespace mooncake::python
