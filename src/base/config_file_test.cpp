// Proves: flat YAML and JSON become the same key -> text map with numbers kept as they were
// written, and whatever is not flat, not unique or not well-formed is one error that names the
// file; by examples and by writing random maps in both formats and reading them back.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "mooncake/config.h"

namespace mooncake {
namespace {

using Values = std::map<std::string, std::string>;

Values read(std::string_view path, std::string_view content) {
  const auto values = parse_config_file(path, content);
  EXPECT_TRUE(values) << values.error().message();
  return values ? *values : Values{};
}
std::string fault(std::string_view path, std::string_view content) {
  const auto values = parse_config_file(path, content);
  EXPECT_FALSE(values);
  return values ? std::string() : std::string(values.error().detail());
}

TEST(ConfigFile, YamlAndJsonSayTheSame) {
  const Values expected = {{"port", "50051"},
                           {"ratio", "0.90"},
                           {"tiny", "1e-05"},
                           {"enable_ha", "true"},
                           {"quota", "512 MB"},
                           {"cluster", "a b"},
                           {"big", "9223372036854775807"}};
  EXPECT_EQ(read("m.yaml",
                 "# comment\nport: 50051\nratio: 0.90\ntiny: 1e-05\nenable_ha: true\n"
                 "quota: 512 MB\ncluster: 'a b'\nbig: 9223372036854775807\n"),
            expected);
  EXPECT_EQ(read("m.JSON",
                 R"({"port": 50051, "ratio": 0.90, "tiny": 1e-05, "enable_ha": true,
                     "quota": "512 MB", "cluster": "a b", "big": 9223372036854775807})"),
            expected);
}

TEST(ConfigFile, AKeyWithoutAValueIsRefused) {
  constexpr std::string_view kWords =
      "key 'port' has no value; leave the line out for the default, or write \"\" for an empty "
      "text";
  for (const char* text : {"port:\n", "port: ~\n", "port: null\nnext: 1\n", "{a: 1, port: }"}) {
    EXPECT_EQ(fault("m.yaml", text), "config file 'm.yaml': " + std::string(kWords)) << text;
  }
  EXPECT_EQ(fault("m.json", R"({"a": 1, "port": null})"),
            "config file 'm.json': " + std::string(kWords));
  EXPECT_EQ(read("m.yaml", "port: \"\"\nname: 'null'\n"), (Values{{"port", ""}, {"name", "null"}}));
}

TEST(ConfigFile, EmptyYamlSaysNothing) {
  EXPECT_EQ(read("a.yml", ""), Values{});
  EXPECT_EQ(read("a.yml", "# nothing\n"), Values{});
  EXPECT_EQ(read("a.json", "{}"), Values{});
}

TEST(ConfigFile, WhatIsNotFlatIsRefusedByName) {
  EXPECT_EQ(
      fault("m.yaml", "a: [1, 2]\n"),
      "config file 'm.yaml': key 'a' is a list or a table; the file is flat: one text, number "
      "or boolean for each key");
  EXPECT_NE(fault("m.yaml", "a:\n  b: 1\n").find("key 'a' is a list or a table"),
            std::string::npos);
  EXPECT_NE(fault("m.json", R"({"a": {"b": 1}})").find("key 'a' is a list or a table"),
            std::string::npos);
  EXPECT_NE(fault("m.json", R"({"a": []})").find("key 'a' is a list or a table"),
            std::string::npos);
  EXPECT_EQ(fault("m.json", "[1]"), "config file 'm.json': the file is not one JSON object");
  EXPECT_EQ(fault("m.json", "3"), "config file 'm.json': the file is not one JSON object");
  EXPECT_EQ(fault("m.json", "null"), "config file 'm.json': the file is not one JSON object");
  EXPECT_EQ(fault("m.yaml", "just text"),
            "config file 'm.yaml': not a table of `key: value` lines");
  EXPECT_EQ(fault("m.yaml", "a: 1\n---\nb: 2\n"),
            "config file 'm.yaml': more follows after the table of `key: value` lines");
}

// Found by fuzzing: yaml-cpp 0.7's own loaders never return on these.
TEST(ConfigFile, TextThatIsNoDocumentEnds) {
  for (const char* text : {",", ", a", "a: 1\n,", "? ,", "*a", "a: &x 1\nb: *x\n"}) {
    EXPECT_NE(fault("m.yaml", text), "") << text;
  }
}

TEST(ConfigFile, YamlKeysArePlainWords) {
  EXPECT_EQ(fault("m.yaml", "[a]: 1\n"), "config file 'm.yaml': a key is not a plain word");
  EXPECT_EQ(fault("m.yaml", "{a: 1}: 1\n"), "config file 'm.yaml': a key is not a plain word");
  EXPECT_EQ(fault("m.yaml", "~: 1\n"), "config file 'm.yaml': a key is not a plain word");
  EXPECT_EQ(read("m.yaml", "{a: 1, b: 2}"), (Values{{"a", "1"}, {"b", "2"}}));
}

TEST(ConfigFile, KeysAreUnique) {
  EXPECT_EQ(fault("m.yaml", "a: 1\na: 2\n"), "config file 'm.yaml': key 'a' appears twice");
  EXPECT_EQ(fault("m.json", R"({"a": 1, "a": 2})"), "config file 'm.json': key 'a' appears twice");
}

TEST(ConfigFile, BrokenSyntaxSaysWhere) {
  EXPECT_NE(fault("m.json", "{\"a\": }").find("line 1"), std::string::npos);
  EXPECT_NE(fault("m.json", "").find("parse error"), std::string::npos);
  EXPECT_NE(fault("m.json", "{\"a\": 1} x").find("parse error"), std::string::npos);
  EXPECT_NE(fault("m.json", "{\"a\": \"\xff\"}").find("UTF-8"), std::string::npos);
  EXPECT_NE(fault("m.yaml", "a: [1\n").find("line 2"), std::string::npos);
}

TEST(ConfigFile, LimitsAndEndings) {
  EXPECT_EQ(fault("m.toml", ""), "config file 'm.toml': the name must end in .yaml, .yml or .json");
  EXPECT_EQ(fault(".json", "{}"), "config file '.json': the name must end in .yaml, .yml or .json");
  EXPECT_NE(fault("m.yaml", std::string((1 << 20) + 1, '#')).find("is more than 1 MiB"),
            std::string::npos);
  EXPECT_EQ(read("m.yaml", std::string(1 << 20, '#')), Values{});
  EXPECT_NE(fault("m.yaml", "a: " + std::string(5000, '[')), "");
  EXPECT_NE(fault("m.json", R"({"a": )" + std::string(500'000, '[')), "");
}

rc::Gen<std::string> printable() {
  return rc::gen::container<std::string>(rc::gen::inRange(' ', '\x7f'));
}

RC_GTEST_PROP(ConfigFile, JsonIsReadBack, ()) {
  const auto values = *rc::gen::container<Values>(printable(), printable());
  const auto read_back = parse_config_file("x.json", nlohmann::json(values).dump());
  RC_ASSERT(read_back.has_value());
  RC_ASSERT(*read_back == values);
}

RC_GTEST_PROP(ConfigFile, YamlIsReadBack, ()) {
  const auto values = *rc::gen::container<Values>(printable(), printable());
  YAML::Emitter out;
  out << YAML::BeginMap;
  for (const auto& [key, value] : values) {
    out << YAML::Key << YAML::DoubleQuoted << key << YAML::Value << YAML::DoubleQuoted << value;
  }
  out << YAML::EndMap;
  const auto read_back = parse_config_file("x.yaml", out.c_str());
  RC_ASSERT(read_back.has_value());
  RC_ASSERT(*read_back == values);
}

}  // namespace
}  // namespace mooncake
