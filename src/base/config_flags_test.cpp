// Proves: gflags-style command lines mean what gflags made of them, and every word that means
// nothing is an error that names it. By tables of command lines, and by writing random values in
// each spelling.
#include "base/config_flags.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace mooncake::base {
namespace {

using Words = std::vector<std::string>;

constexpr Setting kTable[] = {
    {.name = "port", .type = SettingType::kInteger, .fallback = "50051", .help = "port"},
    {.name = "config_path", .type = SettingType::kText, .fallback = "", .help = "file"},
    {.name = "enable_ha", .type = SettingType::kBool, .fallback = "false", .help = "HA"},
    {.name = "nof_interval", .type = SettingType::kInteger, .fallback = "10", .help = "probe"},
    {.name = "f_ratio", .type = SettingType::kReal, .fallback = "0.5", .help = "ratio"},
};

// "name=value ..." in table order.
std::string given(const Words& words) {
  const auto flags = parse_flags(kTable, words);
  if (!flags) return std::string(flags.error().detail());
  std::string text;
  for (const auto& [row, value] : *flags) {
    if (!text.empty()) text += ' ';
    text += std::string(kTable[row].name) + "=" + value;
  }
  return text;
}

TEST(Flags, AllSpellings) {
  EXPECT_EQ(given({}), "");
  EXPECT_EQ(given({"-port=1"}), "port=1");
  EXPECT_EQ(given({"--port=1"}), "port=1");
  EXPECT_EQ(given({"--port", "1"}), "port=1");
  EXPECT_EQ(given({"-port", "-1"}), "port=-1");
  EXPECT_EQ(given({"-enable_ha"}), "enable_ha=true");
  EXPECT_EQ(given({"--enable_ha=false"}), "enable_ha=false");
  EXPECT_EQ(given({"--noenable_ha"}), "enable_ha=false");
  EXPECT_EQ(given({"--config-path=a=b"}), "config_path=a=b");
  EXPECT_EQ(given({"--config_path="}), "config_path=");
  EXPECT_EQ(given({"--config_path", ""}), "config_path=");
  EXPECT_EQ(given({"--port=1", "--port=2"}), "port=2");
  EXPECT_EQ(given({"--enable_ha", "--port=1", "--"}), "port=1 enable_ha=true");
}

TEST(Flags, ANameThatBeginsWithNoIsNotANegation) {
  EXPECT_EQ(given({"--nof_interval=3"}), "nof_interval=3");
  EXPECT_EQ(given({"--noport"}), "unknown flag '--noport'; the nearest known one is '--port'");
}

TEST(Flags, EveryMistakeIsNamed) {
  EXPECT_EQ(given({"--prot=1"}), "unknown flag '--prot'; the nearest known one is '--port'");
  EXPECT_EQ(given({"--noenable_hA"}),
            "unknown flag '--noenable_hA'; the nearest known one is '--enable_ha'");
  EXPECT_EQ(given({"serve"}), "'serve' belongs to no flag; flags are written --name=value");
  EXPECT_EQ(given({"--enable_ha", "true"}),
            "'true' belongs to no flag; flags are written --name=value");
  EXPECT_EQ(given({"-"}), "'-' belongs to no flag; flags are written --name=value");
  EXPECT_EQ(given({"--", "--port=1"}), "'--' belongs to no flag; flags are written --name=value");
  EXPECT_EQ(given({"--port"}), "port: the flag needs a value, --port=...");
  EXPECT_EQ(given({"--config_path", "--port", "1"}),
            "config_path: the flag needs a value, --config_path=...");
  EXPECT_EQ(given({"--noenable_ha=true"}), "enable_ha: '--noenable_ha' takes no value");
  EXPECT_EQ(given({"--=1"}), "unknown flag '--'");
  EXPECT_EQ(given({"--sort"}), "unknown flag '--sort'; the nearest known one is '--port'");
  EXPECT_EQ(given({"--nope"}), "unknown flag '--nope'") << "none is near";
}

TEST(Flags, AnEmptyTableKnowsNothing) {
  const Words words = {"--port=1"};
  EXPECT_EQ(parse_flags({}, words).error().detail(), "unknown flag '--port'");
}

RC_GTEST_PROP(Flags, AValueComesThroughUnchanged, (const std::string& value)) {
  const bool one_word = *rc::gen::arbitrary<bool>();
  const std::string dashes = *rc::gen::element<std::string>("-", "--");
  // As a word of its own, what looks like a known flag is taken for one.
  RC_PRE(one_word || value.empty() || value[0] != '-');
  const Words words =
      one_word ? Words{dashes + "config_path=" + value} : Words{dashes + "config_path", value};
  const auto flags = parse_flags(kTable, words);
  RC_ASSERT(flags.has_value());
  RC_ASSERT(flags->at(1) == value);
}

}  // namespace
}  // namespace mooncake::base
