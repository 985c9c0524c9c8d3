// A pattern means what it means in ECMAScript where both have it, matches anywhere, and takes bytes
// as they are; what can't be compiled is refused with a reason.
#include "store/master/key_pattern.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
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
  for (const char* pattern : {"(", "[a", "a**b(", "(?=a)b", "(a)\\1", "*"}) {
    const Result<KeyPattern> compiled = KeyPattern::compile(pattern);
    ASSERT_FALSE(compiled) << pattern;
    EXPECT_EQ(compiled.error().code(), Code::kInvalidArgument);
    EXPECT_NE(compiled.error().detail().find(pattern), std::string::npos);
  }
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i)
    all += text;
  return all;
}

TEST(KeyPattern, WhatNeedsTooManyStepsForAByteIsRefused) {
  const std::string longest(KeyPattern::kMaxSteps - 10, 'a');
  EXPECT_TRUE(KeyPattern::compile(longest));
  EXPECT_TRUE(KeyPattern::compile("[0-9a-f]{64}"));
  EXPECT_TRUE(KeyPattern::compile("^\\pL{30}/x{2,20}$"));
  for (const std::string& pattern :
       {longest + std::string(20, 'b'), std::string("a.{999}z"), std::string("a{1001}"),
        std::string("((((a{100}){100}){100}){100})"), repeated("(a|b)?", 200),
        repeated("a.{100}b|", 10), std::string("a.{3,800}z")}) {
    const Result<KeyPattern> compiled = KeyPattern::compile(pattern);
    ASSERT_FALSE(compiled) << pattern;
    EXPECT_EQ(compiled.error().code(), Code::kInvalidArgument);
    EXPECT_NE(compiled.error().detail().find("more than 256 steps"), std::string::npos)
        << compiled.error().detail();
  }
}

// Of this thread: whatever else the machine does.
std::chrono::nanoseconds cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Each of them has taken RE2 from a tenth of a second to two seconds to compile.
TEST(KeyPattern, WhatTakesLongToReadIsRefusedBeforeItIsRead) {
  for (const std::string& pattern :
       {repeated("a{1000}", 580), repeated("(a{1000})?", 400), repeated("a{1,}", 800),
        repeated("\\pL", 1300), repeated("\\PN", 1300), repeated("x{2,900}", 500)}) {
    const std::chrono::nanoseconds begin = cpu_time();
    EXPECT_FALSE(KeyPattern::compile(pattern)) << pattern;
    EXPECT_LT(cpu_time() - begin, std::chrono::milliseconds(200)) << pattern;
  }
  // No repetitions, and no classes.
  EXPECT_TRUE(matches("\\{999999999999}", "{999999999999}"));
  EXPECT_TRUE(matches(repeated("\\\\p", 80), repeated("\\p", 80)));
}

// What takes other engines time without end.
TEST(KeyPattern, TimeIsLinear) { EXPECT_FALSE(matches("^(a+)+$", std::string(4000, 'a') + "b")); }

}  // namespace
}  // namespace mooncake::store::master
