// Proves: the one size parser and the one duration parser take what the pages promise, refuse the
// rest with a message that quotes it, and read back what the formatters write. By tables of
// spellings and by properties over the whole range. Cases: C9.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>

#include "mooncake/config.h"

namespace mooncake {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kKilo = 1024;
constexpr std::uint64_t kMega = kKilo * 1024;
constexpr std::uint64_t kGiga = kMega * 1024;
constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(ParseSize, TakesEverySpelling) {
  const std::pair<const char*, std::uint64_t> cases[] = {
      {"512mb", 512 * kMega},
      {"512 MB", 512 * kMega},
      {"0.5gb", kGiga / 2},
      {"1048576", kMega},
      {" 4 GB ", 4 * kGiga},
      {"0", 0},
      {"7b", 7},
      {"1k", kKilo},
      {"1K", kKilo},
      {"1kb", kKilo},
      {"1m", kMega},
      {"1g", kGiga},
      {"2t", 2048 * kGiga},
      {"2Tb", 2048 * kGiga},
      {"1.5 GiB", kGiga + kGiga / 2},
      {"1073741824.0", kGiga},
      {"0.3kb", 307},
      {"0.30000000000000004gb", 322122547},
      {"0.1gb", 107374182},
      {"00000000000000000000000000001k", kKilo},
      {"9223372036854775807", kMax},
      {"8388607t", 8388607ull << 40},
      {"8191.999999999999999999999t", 9007199254740991},
  };
  for (const auto& [text, bytes] : cases) {
    const auto size = parse_size(text);
    ASSERT_TRUE(size) << text << ": " << size.error().message();
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(ParseSize, RefusesTheRestAndQuotesIt) {
  const char* const cases[] = {"50%",
                               "-1",
                               "9223372036854775808",
                               "8388608t",
                               "nan",
                               "inf",
                               "1e3",
                               "",
                               " ",
                               ".",
                               ".5gb",
                               "5.",
                               "5.b",
                               "1,5gb",
                               "0x10",
                               "1.5",
                               "1.5b",
                               "+1",
                               "1 2",
                               "mb",
                               "1bb",
                               "1kk",
                               "1pb",
                               "1mbit",
                               "1mb2",
                               "1_000",
                               "2^63",
                               "- 1",
                               "1..5",
                               "0.0000000000000000000001",
                               "99999999999999999999999999999999999999999999999999999999999",
                               "18446744073709551617"};
  for (const char* text : cases) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size) << text << " was read as " << *size;
    EXPECT_EQ(size.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(size.error().detail().find("'" + std::string(text) + "'"), 0u)
        << size.error().detail();
  }
  EXPECT_EQ(parse_size("-1").error().detail(), "'-1' is negative; a size is 0 or more");
  EXPECT_EQ(parse_size("9223372036854775808").error().detail(),
            "'9223372036854775808' is more than 2^63-1 bytes");
  EXPECT_EQ(parse_size("1.5").error().detail(), "'1.5' is not a whole number of bytes");
}

TEST(FormatSize, TakesTheLargestUnitThatIsExact) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(kGiga + kGiga / 2), "1.5 GiB");
  EXPECT_EQ(format_size(3355443200), "3.125 GiB");
  EXPECT_EQ(format_size(64 * kMega), "64 MiB");
  EXPECT_EQ(format_size(1234567), "1234567 B");
  EXPECT_EQ(format_size(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615 B");
}

// Sizes of any magnitude, round ones included.
std::uint64_t any_size() {
  const auto bits = *rc::gen::inRange(0, 63);
  const auto zeros = *rc::gen::inRange(0, 63);
  return (*rc::gen::arbitrary<std::uint64_t>() >> (63 - bits) << zeros) & kMax;
}

RC_GTEST_PROP(FormatSize, IsReadBackExactly, ()) {
  const std::uint64_t bytes = any_size();
  const auto parsed = parse_size(format_size(bytes));
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(*parsed == bytes);
}

RC_GTEST_PROP(ParseSize, ReadsEveryWholeNumber, ()) {
  const std::uint64_t bytes = any_size();
  RC_ASSERT(parse_size(std::to_string(bytes)).value() == bytes);
}

RC_GTEST_PROP(ParseSize, NeverReadsANumberAboveTheLimit, ()) {
  const std::uint64_t beyond = *rc::gen::arbitrary<std::uint64_t>() | (kMax + 1);
  RC_ASSERT(!parse_size(std::to_string(beyond)));
}

RC_GTEST_PROP(ParseSize, UnitsMultiply, ()) {
  const std::uint64_t count = *rc::gen::inRange<std::uint64_t>(0, 1 << 20);
  RC_ASSERT(parse_size(std::to_string(count) + "k").value() == count * kKilo);
  RC_ASSERT(parse_size(std::to_string(count) + " MiB").value() == count * kMega);
  RC_ASSERT(parse_size(std::to_string(count) + ".5Gb").value() == count * kGiga + kGiga / 2);
}

TEST(ParseDuration, TakesEverySpelling) {
  const std::tuple<const char*, const char*, std::int64_t> cases[] = {
      {"10s", "ms", 10'000},   {"250ms", "s", 250},    {"5m", "ms", 300'000},
      {"1h", "", 3'600'000},   {"1.5m", "ms", 90'000}, {"0.25", "s", 250},
      {"10000", "ms", 10'000}, {"10", "s", 10'000},    {" 2 S ", "ms", 2000},
      {"0", "s", 0},           {"1.000", "ms", 1},     {"876600h", "", 3'155'760'000'000},
  };
  for (const auto& [text, unit, expected] : cases) {
    const auto duration = parse_duration(text, unit);
    ASSERT_TRUE(duration) << text << ": " << duration.error().message();
    EXPECT_EQ(duration->count(), expected) << text;
  }
}

TEST(ParseDuration, RefusesTheRestAndQuotesIt) {
  const char* const cases[] = {"",
                               "-1",
                               "1.5ms",
                               "1e3",
                               "nan",
                               "5 d",
                               "1us",
                               "1hs",
                               "0.0001s",
                               "876601h",
                               "99999999999999999999999s",
                               "s",
                               "1m30s"};
  for (const char* text : cases) {
    const auto duration = parse_duration(text, "ms");
    ASSERT_FALSE(duration) << text << " was read as " << duration->count();
    EXPECT_EQ(duration.error().detail().find("'" + std::string(text) + "'"), 0u);
  }
  EXPECT_EQ(parse_duration("10", "").error().detail(), "'10' has no unit: add ms, s, m or h");
}

RC_GTEST_PROP(FormatDuration, IsReadBackExactly, ()) {
  const auto unit = *rc::gen::element<std::int64_t>(1, 1000, 60'000, 3'600'000);
  const milliseconds duration(unit * *rc::gen::inRange<std::int64_t>(0, 800'000));
  RC_ASSERT(parse_duration(format_duration(duration), "").value() == duration);
}

}  // namespace
}  // namespace mooncake
