// A pattern means what it means in ECMAScript where both have it, matches anywhere, and takes bytes
// as they are; what can't be compiled is refused with a reason.
#include "store/master/key_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace mooncake::store::master {
namespace {

bool matches(std::string_view pattern, std::string_view key) {
  const Result<KeyPattern> compiled = KeyPattern::compile(pattern);
  EXPECT_TRUE(compiled) << compiled.error().message();
  return compiled && compiled->matches(key);
}

TEST(KeyPattern, MatchesAnywhere) {
  EXPECT_TRUE(matches("b", "abc"));
  EXPECT_FALSE(matches("^b", "abc"));
  EXPECT_TRUE(matches("^model/.*/layer_[0-9]+$", "model/a/layer_17"));
  EXPECT_FALSE(matches("^model/.*/layer_[0-9]+$", "model/a/layer_17x"));
  EXPECT_TRUE(matches("(?:k|v)\\d{2}", "x-v42"));
  EXPECT_TRUE(matches("", "anything"));
}

TEST(KeyPattern, KeysAreBytes) {
  EXPECT_TRUE(matches("h\xC3\xB6st", "a h\xC3\xB6st"));
  EXPECT_TRUE(matches("a.b", std::string("a\0b", 3)));
  EXPECT_TRUE(matches("^a.b$",
                      "a\xFF"
                      "b"));
}

TEST(KeyPattern, WhatCannotBeCompiledIsRefusedAndSaysWhy) {
  for (const char* pattern : {"(", "[a", "a**b(", "(?=a)b", "(a)\\1", "*", "a{1001}"}) {
    const Result<KeyPattern> compiled = KeyPattern::compile(pattern);
    ASSERT_FALSE(compiled) << pattern;
    EXPECT_EQ(compiled.error().code(), Code::kInvalidArgument);
    EXPECT_NE(compiled.error().detail().find(pattern), std::string::npos);
  }
  // More states than it may have memory for.
  EXPECT_FALSE(KeyPattern::compile("((((a{100}){100}){100}){100})"));
}

// What takes other engines time without end.
TEST(KeyPattern, TimeIsLinear) { EXPECT_FALSE(matches("^(a+)+$", std::string(4000, 'a') + "b")); }

}  // namespace
}  // namespace mooncake::store::master
