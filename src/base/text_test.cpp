// Proves: quoted text is one harmless line of UTF-8 however hostile its bytes are; what is UTF-8
// (every text of the bytes at which the rules change, against the JSON library); what may be a
// name; and the nearest name is the one with the fewest edits (against known distances).
#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

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

TEST(Text, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(escape("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x91\x8B"), "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x91\x8B");
  EXPECT_EQ(escape("a\xFF\xC3"), "a\\xff\\xc3");
  EXPECT_EQ(escape("\xC2\x85\xC2\xA0"), "\\xc2\\x85\xC2\xA0")
      << "a control of Latin-1 has two bytes";
  EXPECT_EQ(to_utf8("a\xFF\xC3\xA4\n"), "a\xEF\xBF\xBD\xC3\xA4\n");
}

bool is_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

TEST(Text, Utf8IsWhatTheStandardSays) {
  constexpr std::string_view kBytes =
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xF0\xF1\xF3\xF4\xF5\xFF";
  std::vector<std::string> texts = {""};
  for (std::size_t first = 0, length = 1; length <= 4; ++length) {
    const std::size_t end = texts.size();
    for (; first < end; ++first) {
      for (const char byte : kBytes)
        texts.push_back(texts[first] + byte);
    }
  }
  for (const std::string& text : texts) {
    const bool good = is_utf8(text);
    ASSERT_EQ(to_utf8(text) == text, good) << escape(text);
    // A control character before the fault is a reason too.
    ASSERT_TRUE(good ? name_fault(text, 4) != "is not UTF-8" : !name_fault(text, 4).empty())
        << escape(text);
  }
}

TEST(Text, NamesAreShortPrintableUtf8) {
  EXPECT_EQ(name_fault("host:1", 6), "");
  EXPECT_EQ(name_fault("h\xC3\xB6st \\\"{}", 20), "") << "odd, but printable";
  EXPECT_EQ(name_fault("", 6), "is empty");
  EXPECT_EQ(name_fault("host:12", 6), "is 7 bytes long, at most 6 are allowed");
  EXPECT_EQ(name_fault("h\xFF", 6), "is not UTF-8");
  for (const char* text : {"a\n", "\x1b[0m", "a\x7F", "\xC2\x85"})
    EXPECT_EQ(name_fault(text, 6), "holds a control character") << text;
  EXPECT_EQ(name_fault(std::string(1, '\0'), 6), "holds a control character");
}

TEST(Text, APrefixEndsBetweenCharacters) {
  EXPECT_EQ(utf8_prefix("abc", 3), "abc");
  EXPECT_EQ(utf8_prefix("abc", 2), "ab");
  EXPECT_EQ(utf8_prefix("a\xE2\x82\xAC", 3), "a");
  EXPECT_EQ(utf8_prefix("\xE2\x82\xAC", 1), "");
  EXPECT_EQ(utf8_prefix("\x80\x80\x80\x80\x80\x80", 5).size(), 5u) << "no character at all";
  const std::string quoted = quote(std::string(99, 'a') + "\xE2\x82\xAC");
  EXPECT_EQ(quoted, "'" + std::string(99, 'a') + "...'");
}

RC_GTEST_PROP(Text, NothingUnprintableSurvivesQuoting, (const std::string& text)) {
  const std::string quoted = quote(text);
  RC_ASSERT(is_utf8(quoted));
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
  EXPECT_EQ(nearest("metrics", kNames), "metrics_port") << "the rest is left out";
  for (const char* word : {"", "x", "sort_of", "nope", "po"})
    EXPECT_EQ(nearest(word, kNames), "") << word << " is near to none";
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'p'), kNames), "") << "bounded work";
}

}  // namespace
}  // namespace mooncake::base
