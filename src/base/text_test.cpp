// Proves: quoted text is one harmless line however hostile its bytes are, and the nearest name is
// the one with the fewest edits (against known distances).
#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>

namespace mooncake::base {
namespace {

TEST(Text, TrimTakesBlanksOffBothEndsOnly) {
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, CaseOfOtherAlphabetsIsLeftAlone) {
  EXPECT_EQ(to_lower("MiB \xC3\x84"), "mib \xC3\x84");
  EXPECT_TRUE(equal_ignoring_case("YES", "yes"));
  EXPECT_FALSE(equal_ignoring_case("yes", "yes "));
}

TEST(Text, EscapesControlCharacters) {
  EXPECT_EQ(escape("a\nb\t\r\x1b[0m\x7f"), "a\\nb\\t\\r\\x1b[0m\\x7f");
  EXPECT_EQ(quote("70000"), "'70000'");
  EXPECT_EQ(quote(std::string(200, 'a')), "'" + std::string(100, 'a') + "...'");
}

RC_GTEST_PROP(Text, NothingUnprintableSurvivesQuoting, (const std::string& text)) {
  const std::string quoted = quote(text);
  RC_ASSERT(std::none_of(quoted.begin(), quoted.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  }));
  RC_ASSERT(quoted.size() <= 100 * 4 + 5);
}

TEST(Text, NearestHasTheFewestEdits) {
  constexpr std::array<std::string_view, 3> kNames = {"rpc_port", "metrics_port", "port"};
  EXPECT_EQ(nearest("prot", kNames), "port");
  EXPECT_EQ(nearest("rpcport", kNames), "rpc_port");
  EXPECT_EQ(nearest("metric_prot", kNames), "metrics_port");
  EXPECT_EQ(nearest("", kNames), "port");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'p'), kNames), "rpc_port") << "bounded work, some answer";
}

}  // namespace
}  // namespace mooncake::base
