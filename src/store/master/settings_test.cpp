// Every flag of the published mooncake_master is known here; what would change a promise is refused
// from flags and from files alike, the rest says once that it has no effect, and what contradicts
// itself is refused before anything is opened. Case: C24.
#include "store/master/settings.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace mooncake::store::master {
namespace {

Result<MasterConfig> configure(const SettingInputs& inputs) {
  MC_TRY(const Settings settings, Settings::resolve(master_settings(), inputs));
  return master_config(settings);
}
Result<MasterConfig> with_flags(std::vector<std::string> flags) {
  SettingInputs inputs;
  inputs.flags = std::move(flags);
  return configure(inputs);
}
std::string fault(const Result<MasterConfig>& config) {
  EXPECT_FALSE(config);
  return config ? "" : std::string(config.error().detail());
}

// A value of this type that isn't the default.
std::string another_value(const Setting& setting) {
  if (setting.type == SettingType::kBool) return setting.fallback == "true" ? "false" : "true";
  if (setting.type == SettingType::kChoice) return "enforce";
  return setting.type == SettingType::kText ? "x" : "1";
}

TEST(MasterSettings, WhatIsNotBuiltIsRefusedFromEverySource) {
  int refused = 0;
  for (const Setting& setting : master_settings()) {
    if (setting.support != Support::kRefused) continue;
    ++refused;
    const std::string name(setting.name);
    const std::string value = another_value(setting);
    const std::string words = name + ": '" + value + "' is not served";
    EXPECT_TRUE(fault(with_flags({"--" + name + "=" + value})).starts_with(words)) << name;
    SettingInputs file;
    file.file = {{name, value}};
    EXPECT_TRUE(fault(configure(file)).starts_with(words)) << name;
    file.file = {{name, std::string(setting.fallback)}};
    EXPECT_TRUE(configure(file)) << name;
  }
  EXPECT_EQ(refused, 16);
}

TEST(MasterSettings, TheSwitchesThatChangeAPromiseAreAmongThem) {
  for (const std::string name :
       {"enable_ha", "enable_oplog", "enable_snapshot", "enable_snapshot_restore", "enable_offload",
        "promotion_on_hit", "enable_multi_tenants", "quota_bytes", "tenant_quota_connector_uri",
        "root_fs_dir", "enable_cxl", "enable_kv_events", "dynamic_replication_mode"}) {
    const auto rows = master_settings();
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const Setting& setting) { return setting.name == name; });
    ASSERT_NE(row, rows.end()) << name;
    EXPECT_EQ(row->support, Support::kRefused) << name;
  }
}

TEST(MasterSettings, KnobsThatAreNotNeededSaySoOnceEach) {
  SettingInputs inputs;
  std::size_t ignored = 0;
  for (const Setting& setting : master_settings()) {
    if (setting.support != Support::kAcceptedIgnored) continue;
    ++ignored;
    inputs.flags.push_back("--" + std::string(setting.name) + "=" + std::string(setting.fallback));
  }
  const Result<Settings> settings = Settings::resolve(master_settings(), inputs);
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(settings->notices().size(), ignored);
  EXPECT_TRUE(fault(with_flags({"--memory_allocator=best"})).starts_with("memory_allocator"))
      << "still checked";
}

TEST(MasterSettings, StrategyPolicyAndPinsReachTheCore) {
  const std::pair<const char*, AllocationStrategy> strategies[] = {
      {"random", AllocationStrategy::kRandom},
      {"free_ratio_first", AllocationStrategy::kFreeRatioFirst},
      {"local_first", AllocationStrategy::kLocalFirst}};
  for (const auto& [name, strategy] : strategies) {
    const auto config = with_flags({std::string("--allocation_strategy=") + name});
    ASSERT_TRUE(config) << config.error().message();
    EXPECT_EQ(config->server.core.strategy, strategy);
  }
  for (const char* other : {"ssd_free_ratio_first", "cxl"}) {
    const std::string why = fault(with_flags({std::string("--allocation_strategy=") + other}));
    EXPECT_NE(why.find("random|free_ratio_first|local_first"), std::string::npos) << why;
  }
  EXPECT_EQ(with_flags({})->server.core.eviction_policy, CoreOptions().eviction_policy);
  for (const EvictionKind policy : kEvictionKinds) {
    const auto config = with_flags({"--eviction_policy=" + std::string(name_of(policy))});
    ASSERT_TRUE(config) << config.error().message();
    EXPECT_EQ(config->server.core.eviction_policy, policy);
  }
  const std::string why = fault(with_flags({"--eviction_policy=clock"}));
  EXPECT_NE(why.find("lru|fifo|s3fifo|sieve"), std::string::npos) << why;
  const auto pins = with_flags({"--default_kv_soft_pin_ttl=5s", "--max_kv_soft_pin_ttl=1m",
                                "--noallow_evict_soft_pinned_objects"});
  ASSERT_TRUE(pins) << pins.error().message();
  EXPECT_EQ(pins->server.core.soft_pin_ttl, std::chrono::seconds(5));
  EXPECT_EQ(pins->server.core.max_soft_pin_ttl, std::chrono::minutes(1));
  EXPECT_FALSE(pins->server.core.evict_soft_pinned);
  EXPECT_EQ(fault(with_flags({"--default_kv_soft_pin_ttl=2m", "--max_kv_soft_pin_ttl=1m"})),
            "default_kv_soft_pin_ttl: 2m is more than the 1m of max_kv_soft_pin_ttl");
}

TEST(MasterSettings, AnInterfaceGivesTheAddress) {
  const auto loopback = with_flags({"--rpc_interface=lo", "--rpc_address=10.0.0.1"});
  ASSERT_TRUE(loopback) << loopback.error().message();
  EXPECT_EQ(loopback->rpc.host, "127.0.0.1");
  const std::string why = fault(with_flags({"--rpc_interface=eht0"}));
  EXPECT_TRUE(why.starts_with("rpc_interface: 'eht0' is no interface")) << why;
  EXPECT_NE(why.find("lo"), std::string::npos) << why;
}

TEST(MasterSettings, ReportsAndMemoryOfEvents) {
  EXPECT_EQ(with_flags({})->server.report_every, std::chrono::seconds(10));
  EXPECT_EQ(with_flags({"--noenable_metric_reporting"})->server.report_every, base::Duration{});
  EXPECT_EQ(with_flags({})->server.core.remembered_events, 65536u);
  EXPECT_EQ(with_flags({"--remembered_events=0"})->server.core.remembered_events, 0u);
}

TEST(MasterSettings, EachNameIsOneRow) {
  std::vector<std::string_view> names;
  for (const Setting& setting : master_settings())
    names.push_back(setting.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(MasterSettings, HostsAndPortsAreCheckedBeforeAnythingIsOpened) {
  for (const std::string name : {"rpc_address", "metrics_host", "http_metadata_server_host"}) {
    for (const char* value : {"", "a b", "host:1"})
      EXPECT_TRUE(fault(with_flags({"--" + name + "=" + value})).starts_with(name + ": '"));
  }
  for (const std::string name : {"port", "metrics_port", "http_metadata_server_port"}) {
    EXPECT_EQ(fault(with_flags({"--" + name + "=0"})), name + ": '0' is not in 1..65535");
  }
  EXPECT_EQ(with_flags({"--rpc_address=[::1]", "--rpc_port=5"})->rpc, net::Address("::1", 5));
  EXPECT_EQ(with_flags({"--rpc_port=0", "--port=6"})->rpc.port, 6);
}

TEST(MasterSettings, ContradictionsNameBoth) {
  const std::string ports = fault(with_flags({"--port=9003"}));
  EXPECT_EQ(ports, "port and metrics_port are both 9003; each needs a port of its own");
  EXPECT_NE(fault(with_flags({"--enable_http_metadata_server", "--rpc_port=8080"}))
                .find("http_metadata_server_port and rpc_port are both 8080"),
            std::string::npos);
  EXPECT_TRUE(with_flags({"--rpc_port=8080"})) << "nobody else is there";
  EXPECT_EQ(fault(with_flags({"--put_start_release_timeout_sec=30"})),
            "put_start_release_timeout_sec: 30s is not more than the 30s of "
            "put_start_discard_timeout_sec");
  EXPECT_TRUE(with_flags({"--put_start_discard_timeout_sec=700"})) << "the other was not given";
}

}  // namespace
}  // namespace mooncake::store::master
