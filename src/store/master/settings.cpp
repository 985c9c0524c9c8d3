#include "store/master/settings.h"

#include <fmt/format.h>

#include "base/ids.h"

namespace mooncake::store::master {

namespace {

constexpr Setting kSettings[] = {
    {.name = "config_path",
     .type = SettingType::kText,
     .fallback = "",
     .help = "file of settings (.yaml, .yml or .json); flags win over it"},
    {.name = "rpc_address",
     .type = SettingType::kText,
     .fallback = "0.0.0.0",
     .help = "address that clients connect to"},
    {.name = "rpc_port",
     .type = SettingType::kInteger,
     .fallback = "0",
     .help = "port for clients; 0 = take `port`",
     .minimum = 0,
     .maximum = 65535},
    {.name = "port",
     .type = SettingType::kInteger,
     .fallback = "50051",
     .help = "older name of rpc_port",
     .minimum = 1,
     .maximum = 65535},
    {.name = "metrics_host",
     .type = SettingType::kText,
     .fallback = "0.0.0.0",
     .help = "address of the HTTP server for /metrics and /health"},
    {.name = "metrics_port",
     .type = SettingType::kInteger,
     .fallback = "9003",
     .help = "port of the HTTP server for /metrics and /health",
     .minimum = 1,
     .maximum = 65535},
    {.name = "enable_http_metadata_server",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "also serve the transfer engine's metadata over HTTP"},
    {.name = "http_metadata_server_host",
     .type = SettingType::kText,
     .fallback = "0.0.0.0",
     .help = "address of the metadata server"},
    {.name = "http_metadata_server_port",
     .type = SettingType::kInteger,
     .fallback = "8080",
     .help = "port of the metadata server",
     .minimum = 1,
     .maximum = 65535},
    {.name = "default_kv_lease_ttl",
     .type = SettingType::kDuration,
     .fallback = "10000",
     .help = "how long an object is kept after it was read or asked for",
     .unit = "ms",
     .minimum = 1,
     .maximum = 86400000},
    {.name = "client_ttl",
     .type = SettingType::kDuration,
     .fallback = "10",
     .help = "silence after which a client counts as dead",
     .unit = "s",
     .minimum = 1,
     .maximum = 86400,
     .file_key = "client_live_ttl_sec"},
    {.name = "put_start_discard_timeout_sec",
     .type = SettingType::kDuration,
     .fallback = "30",
     .help = "time after which an open write is given up",
     .unit = "s",
     .minimum = 1,
     .maximum = 86400},
    {.name = "eviction_high_watermark_ratio",
     .type = SettingType::kReal,
     .fallback = "0.90",
     .help =
         "share of the capacity above which objects are evicted; 1 = only when a put needs room",
     .minimum = 0,
     .maximum = 1},
    {.name = "eviction_ratio",
     .type = SettingType::kReal,
     .fallback = "0.05",
     .help = "share of the capacity that one round of eviction frees",
     .minimum = 0,
     .maximum = 1},
    {.name = "cluster_secret",
     .type = SettingType::kText,
     .fallback = "",
     .help = "every client must prove that it knows this; better given by the environment",
     .env = "MOONCAKE_CLUSTER_SECRET"},
    {.name = "state_dir",
     .type = SettingType::kText,
     .fallback = "",
     .help = "existing folder in which the Master keeps its epoch over restarts; empty = none"},
    {.name = "log_level",
     .type = SettingType::kChoice,
     .fallback = "info",
     .help = "least severe lines that are written to stderr",
     .allowed = "debug|info|warning|error|off"},
};

net::Address address(const Settings& settings, std::string_view host, std::string_view port) {
  return {settings.text(host), static_cast<std::uint16_t>(settings.integer(port))};
}

Result<void> check_apart(const net::Address& a, std::string_view a_name, const net::Address& b,
                         std::string_view b_name) {
  if (a.port != b.port) return {};
  return fail(
      Code::kInvalidArgument,
      fmt::format("{} and {} are both {}; each needs a port of its own", a_name, b_name, a.port));
}

}  // namespace

std::span<const Setting> master_settings() { return kSettings; }

Result<MasterConfig> master_config(const Settings& settings) {
  MasterConfig config;
  const bool new_name = settings.integer("rpc_port") != 0;
  config.rpc = address(settings, "rpc_address", new_name ? "rpc_port" : "port");
  config.http = address(settings, "metrics_host", "metrics_port");
  config.serve_metadata = settings.boolean("enable_http_metadata_server");
  config.metadata = address(settings, "http_metadata_server_host", "http_metadata_server_port");
  MC_CHECK(check_apart(config.rpc, new_name ? "rpc_port" : "port", config.http, "metrics_port"));
  if (config.serve_metadata) {
    MC_CHECK(
        check_apart(config.metadata, "http_metadata_server_port", config.http, "metrics_port"));
    MC_CHECK(check_apart(config.metadata, "http_metadata_server_port", config.rpc,
                         new_name ? "rpc_port" : "port"));
  }
  config.server.core.lease_ttl = settings.duration("default_kv_lease_ttl");
  config.server.core.client_ttl = settings.duration("client_ttl");
  config.server.core.grant_ttl = settings.duration("put_start_discard_timeout_sec");
  config.server.core.eviction_high_watermark = settings.real("eviction_high_watermark_ratio");
  config.server.core.eviction_ratio = settings.real("eviction_ratio");
  config.server.heartbeat =
      std::min<base::Duration>(config.server.heartbeat, config.server.core.client_ttl / 4);
  config.server.identity.role = "master";
  config.server.identity.name = net::to_string(config.rpc);
  config.server.identity.boot_id = base::boot_id();
  config.server.identity.cluster_secret = settings.text("cluster_secret");
  if (!settings.text("state_dir").empty()) {
    config.server.epoch_file = settings.text("state_dir") + "/epoch";
  }
  return config;
}

}  // namespace mooncake::store::master
