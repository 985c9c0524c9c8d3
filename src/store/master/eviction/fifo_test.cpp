// Fifo: reading changes nothing but what is held now.
#include "store/master/eviction/fifo.h"

#include <gtest/gtest.h>

#include "store/master/eviction/policy_testing.h"

namespace mooncake::store::master {
namespace {

TEST(Fifo, FirstPublishedFirst) {
  PolicyFixture f(EvictionKind::kFifo, 10, 100);
  EXPECT_EQ(f.next(), kNobody);
  for (std::uint32_t i = 0; i < 4; ++i, ++f.now)
    f.publish(i);
  f.access(0);
  f.now += f.hold;  // read, but no longer held
  f.remove(2);
  for (const std::uint32_t victim : {0u, 1u, 3u, kNobody})
    EXPECT_EQ(f.evict(), victim);
}

TEST(Fifo, HeldOnesAreTheFirstAgainWhenTheirHoldEnds) {
  PolicyFixture f(EvictionKind::kFifo, 10, 100);
  for (std::uint32_t i = 0; i < 6; ++i, ++f.now)
    f.publish(i);
  f.access(0);
  f.now += 10;
  f.access(1);
  EXPECT_EQ(f.evict(), 2u);
  f.now += 90;  // 0 is free to the nanosecond
  EXPECT_EQ(f.evict(), 0u);
  EXPECT_EQ(f.evict(), 3u);
  f.access(1);  // longer than it has been aside for
  f.now += 10;
  EXPECT_EQ(f.evict(), 4u);
  f.now += 89;
  EXPECT_EQ(f.next(), 5u);
  ++f.now;
  EXPECT_EQ(f.evict(), 1u);
  EXPECT_EQ(f.evict(), 5u);
  EXPECT_EQ(f.policy->verify().value(), 0u);
}

}  // namespace
}  // namespace mooncake::store::master
