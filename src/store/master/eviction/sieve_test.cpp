// Sieve: the hand spares what was read since it came by, once.
#include "store/master/eviction/sieve.h"

#include <gtest/gtest.h>

#include "store/master/eviction/policy_testing.h"

namespace mooncake::store::master {
namespace {

TEST(Sieve, TheHandGoesOnWhereItWas) {
  PolicyFixture f(EvictionKind::kSieve, 10, 0);
  EXPECT_EQ(f.next(), kNobody);
  for (std::uint32_t i = 0; i < 5; ++i, ++f.now)
    f.publish(i);
  for (const std::uint32_t read : {0u, 1u, 4u})
    f.access(read);
  EXPECT_EQ(f.evict(), 2u);  // behind 0 and 1, which have been spared
  f.publish(5);
  EXPECT_EQ(f.evict(), 3u);
  EXPECT_EQ(f.evict(), 5u);  // spares 4
  EXPECT_EQ(f.evict(), 0u);  // and begins again
  f.access(4);
  EXPECT_EQ(f.evict(), 1u);
  EXPECT_EQ(f.evict(), 4u);
  EXPECT_EQ(f.evict(), kNobody);
}

TEST(Sieve, TheEntryUnderTheHandMayBeRemoved) {
  PolicyFixture f(EvictionKind::kSieve, 10, 0);
  for (std::uint32_t i = 0; i < 4; ++i)
    f.publish(i);
  f.access(0);
  EXPECT_EQ(f.next(), 1u);
  f.remove(1);
  EXPECT_EQ(f.evict(), 2u);
  f.remove(3);  // the newest, under the hand
  ASSERT_TRUE(f.policy->verify());
  EXPECT_EQ(f.evict(), 0u);
}

TEST(Sieve, HeldOnesComeBackBehindTheHand) {
  PolicyFixture f(EvictionKind::kSieve, 10, 100);
  for (std::uint32_t i = 0; i < 5; ++i, ++f.now)
    f.publish(i);
  f.access(0);
  EXPECT_EQ(f.evict(), 1u);
  f.now += f.hold;
  // The hand has passed 0, and goes on before it comes to 0 again.
  for (const std::uint32_t victim : {2u, 3u, 4u, 0u, kNobody})
    EXPECT_EQ(f.evict(), victim);
}

}  // namespace
}  // namespace mooncake::store::master
