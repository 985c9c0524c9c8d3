// S3Fifo: once-read objects go early, read ones stay, ghosts come back to the main queue; shares
// are of bytes.
#include "store/master/eviction/s3fifo.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "store/master/eviction/policy_testing.h"

namespace mooncake::store::master {
namespace {

TEST(S3Fifo, WhatIsReadLeavesTheSmallQueueForTheMainOne) {
  PolicyFixture f(EvictionKind::kS3Fifo, 30, 0);
  EXPECT_EQ(f.next(), kNobody);
  for (std::uint32_t i = 0; i < 10; ++i)
    f.publish(i);
  for (const std::uint32_t read : {0u, 2u, 2u, 2u, 2u, 2u})
    f.access(read);
  for (const std::uint32_t victim : {1u, 3u, 4u, 5u, 6u, 7u, 8u, 9u})
    EXPECT_EQ(f.evict(), victim);
  // How often they were read has been spent on the way.
  EXPECT_EQ(f.evict(), 0u);
  EXPECT_EQ(f.evict(), 2u);
}

TEST(S3Fifo, TheMainQueueGoesRoundOnceForEachRead) {
  PolicyFixture f(EvictionKind::kS3Fifo, 30, 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    f.publish(i);
    f.access(i);
  }
  f.publish(4);
  EXPECT_EQ(f.evict(), 4u);  // 0 to 3 have gone to the main queue
  f.access(0);
  f.access(0);
  f.access(1);
  for (const std::uint32_t victim : {2u, 3u, 1u, 0u, kNobody})
    EXPECT_EQ(f.evict(), victim);
}

TEST(S3Fifo, AGhostComesBackToTheMainQueue) {
  PolicyFixture f(EvictionKind::kS3Fifo, 30, 0);
  for (std::uint32_t i = 0; i < 20; ++i)
    f.publish(i);
  EXPECT_EQ(f.evict(), 0u);
  f.remove(1);   // not evicted, and no ghost
  f.publish(1);  // behind 2 .. 19 in the small queue
  f.publish(0);  // in the main queue
  for (std::uint32_t victim = 2; victim < 20; ++victim)
    EXPECT_EQ(f.evict(), victim);
  EXPECT_EQ(f.evict(), 1u);
  EXPECT_EQ(f.evict(), 0u);
  f.publish(0);  // evicted from the main queue, and no ghost
  f.publish(21);
  EXPECT_EQ(f.evict(), 0u);
}

TEST(S3Fifo, TheSmallQueueHasATenthOfTheBytes) {
  PolicyFixture f(EvictionKind::kS3Fifo, 30, 0);
  for (std::uint32_t i = 0; i < 10; ++i) {
    f.items[i].size = 100;
    f.publish(i);
    f.access(i);
  }
  f.items[10].size = 1000;
  f.publish(10);
  EXPECT_EQ(f.evict(), 10u);
  f.items[11].size = 90;
  f.publish(11);
  EXPECT_EQ(f.next(), 0u);  // 90 is less than a tenth of 1090
  f.items[12].size = 30;
  f.publish(12);
  EXPECT_EQ(f.evict(), 11u);
  EXPECT_EQ(f.next(), 0u);
  ASSERT_TRUE(f.policy->verify());
}

TEST(S3Fifo, HeldOnesComeBackToTheEndAtWhichTheyWere) {
  PolicyFixture f(EvictionKind::kS3Fifo, 30, 100);
  for (std::uint32_t i = 0; i < 20; ++i, ++f.now)
    f.publish(i);
  f.access(0);
  f.access(1);
  EXPECT_EQ(f.evict(), 2u);
  f.remove(1);  // while it waits
  f.now += f.hold;
  EXPECT_EQ(f.evict(), 3u);  // 0 came back, and went to the main queue
  for (std::uint32_t victim = 4; victim < 20; ++victim)
    EXPECT_EQ(f.evict(), victim);
  f.access(0);
  EXPECT_EQ(f.evict(), kNobody);
  f.now += f.hold;
  EXPECT_EQ(f.evict(), 0u);
  EXPECT_EQ(f.policy->verify().value(), 0u);
}

TEST(S3Fifo, GhostsAreAsManyAsCandidatesInTwoBytesEach) {
  Ghosts ghosts;
  EXPECT_EQ(ghosts.memory_bytes(), 0u);
  EXPECT_FALSE(ghosts.take(1));
  constexpr std::uint64_t kCandidates = 100'000;
  const auto hash = [](std::uint64_t i) { return base::hash64(std::to_string(i), 1); };
  for (std::uint64_t i = 0; i < 2 * kCandidates; ++i)
    ghosts.add(hash(i), kCandidates);
  EXPECT_LE(ghosts.memory_bytes(), kCandidates * 9 / 4 + 64);
  std::uint64_t old = 0;
  std::uint64_t young = 0;
  for (std::uint64_t i = 0; i < kCandidates / 2; ++i) {
    old += ghosts.take(hash(i));
    young += ghosts.take(hash(2 * kCandidates - 1 - i));
  }
  EXPECT_LT(old, kCandidates / 100);
  EXPECT_GT(young, kCandidates / 2 * 99 / 100);
  EXPECT_FALSE(ghosts.take(hash(2 * kCandidates - 1))) << "forgotten when it was taken";
  ghosts.add(7, 10);
  EXPECT_LE(ghosts.memory_bytes(), 64u);
  EXPECT_TRUE(ghosts.take(7));
}

}  // namespace
}  // namespace mooncake::store::master
