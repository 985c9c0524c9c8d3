// Proves: a seed repeats its sequence (fixed values, so that old seeds replay for ever), bounds
// hold, every result is about equally likely, and what means "none" is never drawn.
#include "base/random.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <set>

namespace mooncake::base {
namespace {

// xoshiro256** after splitmix64 of the seed; computed apart from this code.
TEST(Random, ASeedReplaysForEver) {
  Random random(0);
  EXPECT_EQ(random.next(), 0x99EC5F36CB75F2B4u);
  EXPECT_EQ(random.next(), 0xBF6E1F784956452Au);
  EXPECT_EQ(random.next(), 0x1A5F849D4933E6E0u);
}

TEST(Random, NearSeedsAreUnlike) {
  std::set<std::uint64_t> first;
  for (std::uint64_t seed = 0; seed < 1000; ++seed)
    first.insert(Random(seed).next() >> 32);
  EXPECT_GT(first.size(), 990u);
}

RC_GTEST_PROP(Random, StaysBelowItsBound, (std::uint64_t seed, std::uint64_t bound)) {
  RC_PRE(bound > 0);
  Random random(seed);
  for (int i = 0; i < 20; ++i)
    RC_ASSERT(random.below(bound) < bound);
  RC_ASSERT(random.below(1) == 0);
}

TEST(Random, EveryResultIsAboutEquallyLikely) {
  Random random(7);
  std::array<int, 6> counts{};
  for (int i = 0; i < 60'000; ++i)
    ++counts[random.below(counts.size())];
  for (const int count : counts)
    EXPECT_NEAR(count, 10'000, 400);
  // A bound just above 2^63 takes the branch that draws again for half of the draws.
  int upper = 0;
  const std::uint64_t bound = (std::uint64_t{1} << 63) + 1;
  for (int i = 0; i < 10'000; ++i)
    upper += random.below(bound) > bound / 2 ? 1 : 0;
  EXPECT_NEAR(upper, 5'000, 250);
}

TEST(Random, UnitAndChance) {
  Random random(3);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double unit = random.unit();
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
    hits += random.chance(0.25) ? 1 : 0;
    ASSERT_FALSE(random.chance(0));
    ASSERT_TRUE(random.chance(1));
    ASSERT_NE(static_cast<std::uint64_t>(random.incarnation()), 0u);
    ASSERT_TRUE(random.uuid().valid());
  }
  EXPECT_NEAR(hits, 2'500, 200);
}

TEST(SecureRandom, FillsEveryByteAndDoesNotRepeat) {
  std::array<std::byte, 333> bytes{};
  std::array<bool, 333> changed{};
  for (int round = 0; round < 8; ++round) {
    secure_random(bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      changed[i] = changed[i] || bytes[i] != std::byte{};
  }
  for (std::size_t i = 0; i < changed.size(); ++i)
    EXPECT_TRUE(changed[i]) << i;
  EXPECT_NE(secure_random(), secure_random());
}

}  // namespace
}  // namespace mooncake::base
