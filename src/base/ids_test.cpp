// Proves: versions order by epoch, then sequence, and survive the generation word with its writing
// bit; ids print as the published API prints them; the boot id is read once and whole.
#include "base/ids.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>

namespace mooncake::base {
namespace {

RC_GTEST_PROP(Version, SurvivesTheGenerationWord, (std::uint32_t epoch, std::uint32_t sequence)) {
  const Version version(static_cast<Epoch>(epoch), sequence & Version::kMaxSequence);
  RC_ASSERT(version.epoch() == static_cast<Epoch>(epoch));
  RC_ASSERT(version.sequence() == (sequence & Version::kMaxSequence));
  RC_ASSERT(version_of(complete(version)) == version);
  RC_ASSERT(version_of(writing(version)) == version);
  RC_ASSERT(is_writing(writing(version)));
  RC_ASSERT(!is_writing(complete(version)));
  RC_ASSERT(Version::from_value(version.value()) == version);
}

RC_GTEST_PROP(Version, OrdersByEpochThenSequence,
              (std::uint32_t e1, std::uint32_t s1, std::uint32_t e2, std::uint32_t s2)) {
  s1 &= Version::kMaxSequence;
  s2 &= Version::kMaxSequence;
  const Version a(static_cast<Epoch>(e1), s1);
  const Version b(static_cast<Epoch>(e2), s2);
  RC_ASSERT((a < b) == (std::pair(e1, s1) < std::pair(e2, s2)));
}

TEST(Uuid, PrintsTwoDecimals) {
  EXPECT_EQ(to_string(Uuid{1, 18446744073709551615u}), "1-18446744073709551615");
  EXPECT_FALSE(Uuid{}.valid());
}

TEST(Uuid, HexTextIsReadOrRefusedWhole) {
  const Uuid id{0x0123456789abcdefu, 0xfedcba9876543210u};
  EXPECT_EQ(parse_hex_uuid("01234567-89ab-cdef-fedc-ba9876543210"), id);
  EXPECT_EQ(parse_hex_uuid("0123456789ABCDEFFEDCBA9876543210"), id);
  EXPECT_FALSE(parse_hex_uuid("").valid());
  EXPECT_FALSE(parse_hex_uuid("01234567-89ab-cdef-fedc-ba987654321").valid());
  EXPECT_FALSE(parse_hex_uuid("01234567-89ab-cdef-fedc-ba98765432100").valid());
  EXPECT_FALSE(parse_hex_uuid("g1234567-89ab-cdef-fedc-ba9876543210").valid());
}

TEST(BootId, IsTheKernels) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(boot_id(), parse_hex_uuid(text));
  EXPECT_EQ(boot_id(), boot_id());
}

}  // namespace
}  // namespace mooncake::base
