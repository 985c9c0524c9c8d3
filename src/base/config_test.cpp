// Proves: a table and its inputs become typed values or one error that names field, value and what
// is allowed; who wins between sources; what happens to settings that are not served; that help and
// docs name every row. By examples for the messages, by properties for values. Cases: C9, C24, C34.
#include "mooncake/config.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

namespace mooncake {
namespace {

using std::chrono::milliseconds;
using Type = SettingType;

constexpr Setting kTable[] = {
    {.name = "port",
     .type = Type::kInteger,
     .fallback = "50051",
     .help = "port to listen on",
     .minimum = 1,
     .maximum = 65535,
     .env = "MC_TEST_PORT"},
    {.name = "ratio",
     .type = Type::kReal,
     .fallback = "0.05",
     .help = "share evicted at once",
     .minimum = 0,
     .maximum = 1},
    {.name = "segment_size",
     .type = Type::kBytes,
     .fallback = "4 GB",
     .help = "memory given",
     .minimum = 1024,
     .env = "MC_TEST_SEGMENT"},
    {.name = "client_ttl",
     .type = Type::kDuration,
     .fallback = "10",
     .help = "silence until dead",
     .unit = "s",
     .minimum = 1,
     .maximum = 3600,
     .file_key = "client_live_ttl_sec"},
    {.name = "enable_metrics", .type = Type::kBool, .fallback = "true", .help = "log a summary"},
    {.name = "strategy",
     .type = Type::kChoice,
     .fallback = "random",
     .help = "where to put",
     .allowed = "random|free_ratio_first|cxl"},
    {.name = "catalog",
     .type = Type::kChoice,
     .fallback = "",
     .help = "which",
     .allowed = "|local|s3"},
    {.name = "cluster", .type = Type::kText, .fallback = "mooncake_cluster", .help = "name"},
    {.name = "master", .type = Type::kAddress, .fallback = "127.0.0.1:50051", .help = "address"},
    {.name = "backup", .type = Type::kAddress, .fallback = "", .help = "second address"},
    {.name = "bind", .type = Type::kHost, .fallback = "0.0.0.0", .help = "where to listen"},
    {.name = "max_threads",
     .type = Type::kInteger,
     .fallback = "16",
     .help = "thread count",
     .support = Support::kAcceptedIgnored},
    {.name = "enable_ha",
     .type = Type::kBool,
     .fallback = "false",
     .help = "several masters, one leads",
     .env = "MC_TEST_HA",
     .support = Support::kRefused},
    {.name = "any_integer", .type = Type::kInteger, .fallback = "0", .help = "unbounded"},
};

Settings resolve(const SettingInputs& inputs) {
  auto settings = Settings::resolve(kTable, inputs);
  EXPECT_TRUE(settings) << settings.error().message();
  return settings ? *settings : *Settings::resolve(kTable, {});
}
Settings with_flags(std::vector<std::string> flags) {
  SettingInputs inputs;
  inputs.flags = std::move(flags);
  return resolve(inputs);
}
std::string fault(const SettingInputs& inputs) {
  const auto settings = Settings::resolve(kTable, inputs);
  EXPECT_FALSE(settings);
  return settings ? std::string() : std::string(settings.error().detail());
}
std::string flag_fault(const std::string& flag) {
  SettingInputs inputs;
  inputs.flags = {flag};
  return fault(inputs);
}

TEST(Settings, DefaultsAreTyped) {
  const Settings settings = resolve({});
  EXPECT_EQ(settings.integer("port"), 50051);
  EXPECT_DOUBLE_EQ(settings.real("ratio"), 0.05);
  EXPECT_EQ(settings.bytes("segment_size"), std::uint64_t{4} << 30);
  EXPECT_EQ(settings.duration("client_ttl"), milliseconds(10'000));
  EXPECT_TRUE(settings.boolean("enable_metrics"));
  EXPECT_EQ(settings.text("strategy"), "random");
  EXPECT_EQ(settings.text("catalog"), "");
  EXPECT_EQ(settings.text("master"), "127.0.0.1:50051");
  EXPECT_EQ(settings.source("port"), SettingSource::kDefault);
  EXPECT_TRUE(settings.notices().empty());
}

TEST(Settings, LaterSourcesWin) {
  SettingInputs inputs;
  const auto port = [&] {
    const Settings settings = resolve(inputs);
    return std::to_string(settings.integer("port")) + " " +
           std::string(to_string(settings.source("port")));
  };
  EXPECT_EQ(port(), "50051 default");
  inputs.file["port"] = "1";
  EXPECT_EQ(port(), "1 file");
  inputs.environment["MC_TEST_PORT"] = "2";
  EXPECT_EQ(port(), "2 environment");
  inputs.flags = {"--port=3"};
  EXPECT_EQ(port(), "3 flag");
  inputs.arguments["port"] = "4";
  EXPECT_EQ(port(), "4 argument");
}

TEST(Settings, AnEmptyVariableIsNotSet) {
  SettingInputs inputs;
  inputs.environment = {{"MC_TEST_PORT", ""}, {"PATH", "/bin"}};
  EXPECT_EQ(resolve(inputs).integer("port"), 50051);
}

TEST(Settings, EveryErrorNamesFieldValueAndWhatIsAllowed) {
  EXPECT_EQ(flag_fault("--port=70000"), "port: '70000' is not in 1..65535");
  EXPECT_EQ(flag_fault("--port=0"), "port: '0' is not in 1..65535");
  EXPECT_EQ(flag_fault("--port=x"), "port: 'x' is not an integer in 1..65535");
  EXPECT_EQ(flag_fault("--port="), "port: '' is not an integer in 1..65535");
  EXPECT_EQ(flag_fault("--port=99999999999999999999"),
            "port: '99999999999999999999' is not in 1..65535");
  EXPECT_EQ(flag_fault("--any_integer=9223372036854775808"),
            "any_integer: '9223372036854775808' is not in -2^63..2^63-1");
  EXPECT_EQ(flag_fault("--any_integer=1.0"), "any_integer: '1.0' is not an integer");
  EXPECT_EQ(flag_fault("--ratio=1.01"), "ratio: '1.01' is not in 0..1");
  EXPECT_EQ(flag_fault("--ratio=nan"), "ratio: 'nan' is not a number in 0..1");
  EXPECT_EQ(flag_fault("--ratio=5%"), "ratio: '5%' is not a number in 0..1");
  EXPECT_EQ(flag_fault("--segment_size=50%"),
            "segment_size: '50%' is not a size: a decimal number, then b, kb, mb, gb or tb "
            "(1024-based), such as 512mb");
  EXPECT_EQ(flag_fault("--segment_size=-1"), "segment_size: '-1' is negative; a size is 0 or more");
  EXPECT_EQ(flag_fault("--segment_size=1"), "segment_size: '1' is not in 1 KiB or more");
  EXPECT_EQ(flag_fault("--client_ttl=2h"), "client_ttl: '2h' is not in 1..3600 s");
  EXPECT_EQ(flag_fault("--client_ttl=500ms"), "client_ttl: '500ms' is not in 1..3600 s");
  EXPECT_EQ(flag_fault("--enable_metrics=maybe"),
            "enable_metrics: 'maybe' is not one of "
            "true|1|yes|on|enable|false|0|no|off|disable");
  EXPECT_EQ(flag_fault("--strategy=best"),
            "strategy: 'best' is not one of random|free_ratio_first|cxl");
  EXPECT_EQ(flag_fault("--catalog=gcs"), "catalog: 'gcs' is not one of ''|local|s3");
  EXPECT_EQ(flag_fault("--prot=1"), "unknown flag '--prot'; the nearest known one is '--port'");
}

TEST(Settings, AnErrorSaysWhereTheValueCameFrom) {
  SettingInputs inputs;
  inputs.file["client_live_ttl_sec"] = "0";
  EXPECT_EQ(fault(inputs),
            "client_ttl: '0' is not in 1..3600 s (key 'client_live_ttl_sec' of the config file)");
  inputs.file_name = "m.yaml";
  EXPECT_EQ(fault(inputs),
            "client_ttl: '0' is not in 1..3600 s (key 'client_live_ttl_sec' of the config file "
            "'m.yaml')");
  inputs.environment["MC_TEST_PORT"] = "0";
  EXPECT_EQ(fault(inputs), "port: '0' is not in 1..65535 (environment variable MC_TEST_PORT)");
}

TEST(Settings, AddressesAreCheckedForShape) {
  for (const char* good : {"host", "host:1", "10.0.0.1:65535", "[::1]:50051", "[fe80::1%eth0]",
                           "[fe80::1%eth0]:7", "::1", "fe80::1%eth0", "a-b.c_d:0"}) {
    EXPECT_EQ(with_flags({std::string("--master=") + good}).text("master"), good);
  }
  for (const char* bad : {"", ":1", "host:", "host:65536", "host:x", "[::1", "[::1]x",
                          "[::1]:", "[]", "[::g]:1", "1:2:3", "::1:99999", "a b:1", "http://h:1",
                          "host:-1", "[fe80::1%]:1", "host:1/x", "a,b"}) {
    EXPECT_EQ(
        flag_fault(std::string("--master=") + bad).find("master: '" + std::string(bad) + "' "), 0u)
        << bad;
  }
  EXPECT_EQ(flag_fault("--master=1:2:3"),
            "master: '1:2:3' is not an address; an IPv6 literal with a port is written [v6]:port");
  EXPECT_EQ(with_flags({"--backup="}).text("backup"), "") << "may be empty as its default is";
}

TEST(Settings, HostsHaveNoPortAndAreNotEmpty) {
  for (const char* good : {"host", "a-b.c_d", "10.0.0.1", "::", "fe80::1%eth0"})
    EXPECT_EQ(with_flags({std::string("--bind=") + good}).text("bind"), good);
  EXPECT_EQ(with_flags({"--bind=[::1]"}).text("bind"), "::1");
  for (const char* bad : {"", " ", "host:1", "[::1]:1", "[::1", "[]", "[host]", "::g", "a b", "a/b",
                          "a\nb", "\xff", "http://h"}) {
    EXPECT_NE(flag_fault(std::string("--bind=") + bad)
                  .find("' is not a host name or address without a port"),
              std::string::npos)
        << bad;
  }
  EXPECT_EQ(flag_fault("--bind="), "bind: '' is not a host name or address without a port");
}

TEST(Settings, FilesMayUseTheirOwnSpelling) {
  SettingInputs inputs;
  inputs.file["client_live_ttl_sec"] = "60";
  EXPECT_EQ(resolve(inputs).duration("client_ttl"), milliseconds(60'000));
  inputs.file["client_ttl"] = "60";
  EXPECT_EQ(
      fault(inputs),
      "client_ttl: the config file sets both 'client_ttl' and 'client_live_ttl_sec'; keep one");
}

TEST(Settings, KnobsThatAreNotNeededSaySoOnce) {
  const Settings settings = with_flags({"--max_threads=8"});
  EXPECT_EQ(settings.notices(),
            std::vector<std::string>{"max_threads: accepted and ignored, it has no effect here"});
  EXPECT_EQ(flag_fault("--max_threads=x"), "max_threads: 'x' is not an integer");
}

TEST(Settings, ARefusedKnobMayOnlyBeLeftAlone) {
  EXPECT_EQ(
      flag_fault("--enable_ha"),
      "enable_ha: 'true' is not served; it would change: several masters, one leads. Leave it "
      "at 'false'");
  EXPECT_FALSE(with_flags({"--noenable_ha"}).boolean("enable_ha"));
  EXPECT_FALSE(with_flags({"--enable_ha=OFF"}).boolean("enable_ha"))
      << "the same, spelled otherwise";
  SettingInputs inputs;
  inputs.flags = {"--enable_ha"};
  EXPECT_EQ(Settings::resolve(kTable, inputs).error().code(), Code::kNotSupported);
}

TEST(Settings, ARefusedKnobIsRefusedFromEverySource) {
  SettingInputs inputs;
  inputs.file_name = "m.yaml";
  inputs.file = {{"enable_ha", "true"}};
  EXPECT_EQ(fault(inputs).substr(0, 77),
            "enable_ha: 'true' is not served (key 'enable_ha' of the config file 'm.yaml')");
  inputs.file = {{"enable_ha", "false"}};
  EXPECT_TRUE(resolve(inputs).notices().empty());
  inputs.environment = {{"MC_TEST_HA", "1"}};
  EXPECT_NE(fault(inputs).find("is not served (environment variable MC_TEST_HA)"),
            std::string::npos);
  inputs.environment.clear();
  inputs.arguments = {{"enable_ha", "yes"}};
  EXPECT_NE(fault(inputs).find("enable_ha: 'yes' is not served;"), std::string::npos);
}

TEST(Settings, UnknownKeysOfAFileAreRefused) {
  SettingInputs inputs;
  inputs.file = {{"prot", "1"}, {"client_live_ttl", "1"}, {"port", "7"}};
  EXPECT_EQ(fault(inputs),
            "unknown keys in the config file: 'client_live_ttl' (nearest: client_live_ttl_sec), "
            "'prot' (nearest: port)");
  inputs.file_name = "a/m.yaml";
  inputs.file = {{"enable_hah", "true"}};
  EXPECT_EQ(fault(inputs),
            "unknown keys in the config file 'a/m.yaml': 'enable_hah' (nearest: enable_ha)");
  for (int i = 0; i < 30; ++i)
    inputs.file["x" + std::to_string(i)] = "";
  EXPECT_TRUE(fault(inputs).ends_with(" and 11 more"));
}

TEST(Settings, UnknownArgumentsGiveOneNotice) {
  SettingInputs inputs;
  inputs.arguments = {{"segmentsize", "1"}, {"port", "7"}};
  const Settings settings = resolve(inputs);
  EXPECT_EQ(settings.integer("port"), 7);
  EXPECT_EQ(
      settings.notices(),
      std::vector<std::string>{"ignored unknown settings: 'segmentsize' (nearest: segment_size)"});
}

TEST(Settings, ABadDefaultIsOurMistakeAndSaidSo) {
  constexpr Setting kBroken[] = {
      {.name = "n", .type = Type::kInteger, .fallback = "zero", .help = ""}};
  const auto settings = Settings::resolve(kBroken, {});
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().code(), Code::kInternal);
}

TEST(SettingsDeathTest, AskingForTheWrongThingStops) {
  const Settings settings = resolve({});
  EXPECT_DEATH(settings.integer("prot"), "setting 'prot': no such row");
  EXPECT_DEATH(settings.integer("cluster"), "setting 'cluster': asked for as another type");
}

TEST(Settings, RowsAreTheServedOnesInOrder) {
  const auto rows = with_flags({"--noenable_metrics"}).rows();
  ASSERT_EQ(rows.size(), std::size(kTable) - 2);
  EXPECT_EQ(rows[0].name, "port");
  EXPECT_EQ(rows[4].value, "false");
  EXPECT_EQ(rows[4].source, SettingSource::kFlag);
}

TEST(Settings, EnvironmentOfTheProcess) {
  ASSERT_EQ(::setenv("MC_TEST_PORT", "77", 1), 0);
  ASSERT_EQ(::setenv("MC_TEST_SEGMENT", "", 1), 0);
  const auto found = process_environment(kTable);
  ::unsetenv("MC_TEST_PORT");
  ::unsetenv("MC_TEST_SEGMENT");
  EXPECT_EQ(found, (std::map<std::string, std::string>{{"MC_TEST_PORT", "77"}}));
}

TEST(Settings, HelpAndDocsNameEveryRow) {
  const std::string help = help_text("mooncake_master", kTable);
  const std::string docs = docs_table(kTable);
  for (const Setting& setting : kTable) {
    EXPECT_NE(help.find(setting.name), std::string::npos) << setting.name;
    EXPECT_NE(docs.find("| `" + std::string(setting.name) + "`"), std::string::npos)
        << setting.name;
  }
  EXPECT_NE(help.find("  --port  integer, 1..65535, default 50051\n      port to listen on\n"
                      "      environment: MC_TEST_PORT\n"),
            std::string::npos)
      << help;
  EXPECT_NE(help.find("Accepted and ignored:\n  max_threads\n"), std::string::npos) << help;
  EXPECT_NE(
      docs.find("| `strategy` | choice, random\\|free_ratio_first\\|cxl | `random` |  | yes |"),
      std::string::npos)
      << docs;
  EXPECT_NE(
      docs.find("| `client_ttl` (in files `client_live_ttl_sec`) | duration in s, 1..3600 s |"),
      std::string::npos)
      << docs;
}

RC_GTEST_PROP(Settings, ValuesComeThroughEverySource, ()) {
  const auto port = *rc::gen::inRange<std::int64_t>(1, 65536);
  const auto size = *rc::gen::inRange<std::uint64_t>(1024, std::uint64_t{1} << 50);
  const auto seconds = *rc::gen::inRange<std::int64_t>(1, 3601);
  const auto ratio = *rc::gen::inRange(0, 1001);
  const std::map<std::string, std::string> values = {
      {"port", std::to_string(port)},
      {"segment_size", format_size(size)},
      {"client_ttl", format_duration(std::chrono::seconds(seconds))},
      {"ratio", std::to_string(ratio / 1000.0)},
  };
  SettingInputs inputs;
  const int source = *rc::gen::inRange(0, 3);
  if (source == 0) {
    inputs.file = values;
  } else if (source == 1) {
    inputs.arguments = values;
  } else {
    for (const auto& [name, value] : values)
      inputs.flags.push_back("--" + name + "=" + value);
  }
  const auto settings = Settings::resolve(kTable, inputs);
  RC_ASSERT(settings.has_value());
  RC_ASSERT(settings->integer("port") == port);
  RC_ASSERT(settings->bytes("segment_size") == size);
  RC_ASSERT(settings->duration("client_ttl") == std::chrono::seconds(seconds));
  RC_ASSERT(settings->real("ratio") == std::stod(values.at("ratio")));
}

RC_GTEST_PROP(Settings, NoTextOfAPortGetsPastItsRange, (const std::string& text)) {
  SettingInputs inputs;
  inputs.arguments["port"] = text;
  const auto settings = Settings::resolve(kTable, inputs);
  if (settings) {
    RC_ASSERT(settings->integer("port") >= 1 && settings->integer("port") <= 65535);
  } else {
    RC_ASSERT(settings.error().detail().find("port: '") == 0);
  }
}

}  // namespace
}  // namespace mooncake
