#include "store/master/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/ids.h"
#include "net/interface.h"

namespace mooncake::store::master {

namespace {

constexpr base::Duration kReportEvery = std::chrono::seconds(10);

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

// The published program refuses this pair; here the later time has no effect, but says what was
// meant.
Result<void> check_timeouts(const Settings& settings) {
  constexpr std::string_view kDiscard = "put_start_discard_timeout_sec";
  constexpr std::string_view kRelease = "put_start_release_timeout_sec";
  if (settings.source(kRelease) == SettingSource::kDefault) return {};
  const auto discard = settings.duration(kDiscard);
  const auto release = settings.duration(kRelease);
  if (release > discard) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("{}: {} is not more than the {} of {}", kRelease,
                          format_duration(release), format_duration(discard), kDiscard));
}

Result<void> check_pins(const Settings& settings) {
  const auto usual = settings.duration("default_kv_soft_pin_ttl");
  const auto most = settings.duration("max_kv_soft_pin_ttl");
  if (usual <= most) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("default_kv_soft_pin_ttl: {} is more than the {} of max_kv_soft_pin_ttl",
                          format_duration(usual), format_duration(most)));
}

AllocationStrategy strategy(std::string_view name) {
  if (name == "free_ratio_first") return AllocationStrategy::kFreeRatioFirst;
  if (name == "local_first") return AllocationStrategy::kLocalFirst;
  return AllocationStrategy::kRandom;
}

EvictionKind eviction(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kEvictionKinds), std::end(kEvictionKinds),
                                         [&](EvictionKind kind) { return name_of(kind) == name; });
  return found == std::end(kEvictionKinds) ? CoreOptions().eviction_policy : *found;
}

}  // namespace

Result<MasterConfig> master_config(const Settings& settings) {
  MasterConfig config;
  const bool new_name = settings.integer("rpc_port") != 0;
  config.rpc = address(settings, "rpc_address", new_name ? "rpc_port" : "port");
  if (const std::string& interface = settings.text("rpc_interface"); !interface.empty()) {
    Result<std::string> host = net::interface_address(interface);
    if (!host) return fail(std::move(host).error().with_context("rpc_interface"));
    config.rpc.host = *host;
  }
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
  MC_CHECK(check_timeouts(settings));
  config.server.core.lease_ttl = settings.duration("default_kv_lease_ttl");
  config.server.core.client_ttl = settings.duration("client_ttl");
  config.server.core.grant_ttl = settings.duration("put_start_discard_timeout_sec");
  config.server.core.strategy = strategy(settings.text("allocation_strategy"));
  config.server.core.eviction_policy = eviction(settings.text("eviction_policy"));
  MC_CHECK(check_pins(settings));
  config.server.core.soft_pin_ttl = settings.duration("default_kv_soft_pin_ttl");
  config.server.core.max_soft_pin_ttl = settings.duration("max_kv_soft_pin_ttl");
  config.server.core.evict_soft_pinned = settings.boolean("allow_evict_soft_pinned_objects");
  config.server.core.eviction_high_watermark = settings.real("eviction_high_watermark_ratio");
  config.server.core.eviction_ratio = settings.real("eviction_ratio");
  if (settings.boolean("enable_metric_reporting")) config.server.report_every = kReportEvery;
  config.server.core.remembered_events =
      static_cast<std::size_t>(settings.integer("remembered_events"));
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
