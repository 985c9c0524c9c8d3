// Lru against a plain list: the victim is always the least recently used that is not held.
#include "store/master/eviction/lru.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "store/master/eviction/policy_testing.h"

namespace mooncake::store::master {
namespace {

constexpr std::uint64_t kHold = 100;

// With its candidates in order of last use.
struct Fixture : PolicyFixture {
  Fixture() : PolicyFixture(EvictionKind::kLru, 100, kHold) {}

  void access(std::uint32_t entry) {
    PolicyFixture::access(entry);
    candidates.remove(entry);
    candidates.push_back(entry);
  }
  std::uint32_t expected() const {
    for (const std::uint32_t entry : candidates) {
      if (!is_held(entry)) return entry;
    }
    return kNobody;
  }
};

TEST(Lru, OldestFirst) {
  Fixture f;
  EXPECT_EQ(f.next(), kNobody);
  for (std::uint32_t i = 0; i < 3; ++i, ++f.now)
    f.publish(i);
  EXPECT_EQ(f.next(), 0u);
  f.access(0);
  EXPECT_EQ(f.next(), 1u);
  f.now += kHold;  // 0 is held no more, but still the youngest
  EXPECT_EQ(f.next(), 1u);
  f.remove(1);
  f.remove(2);
  EXPECT_EQ(f.next(), 0u);
}

TEST(Lru, HeldOnesKeepTheirOrder) {
  Fixture f;
  for (std::uint32_t i = 0; i < 10; ++i, ++f.now)
    f.publish(i);
  for (std::uint32_t i = 0; i < 10; i += 2, ++f.now)
    f.access(i);
  for (std::uint32_t i = 1; i < 10; i += 2) {
    EXPECT_EQ(f.next(), i);
    f.remove(i);
  }
  EXPECT_EQ(f.next(), kNobody);
  f.now += kHold;
  for (std::uint32_t i = 0; i < 10; i += 2) {
    EXPECT_EQ(f.next(), i);
    f.remove(i);
  }
}

TEST(Lru, RandomUseAgainstAList) {
  base::Random random(11);
  Fixture f;
  for (int step = 0; step < 50'000; ++step) {
    f.now += 1 + random.below(4);
    const auto entry = static_cast<std::uint32_t>(random.below(f.items.size()));
    if (!f.is_candidate(entry)) {
      f.publish(entry);
    } else if (random.chance(0.9)) {
      f.access(entry);
    } else {
      f.remove(entry);
    }
    const std::uint32_t victim = f.next();
    ASSERT_EQ(victim, f.expected());
    if (victim != kNobody && random.chance(0.3)) f.remove(victim);
    if (step % 1000 == 0) {
      ASSERT_EQ(f.policy->verify().value(), f.candidates.size());
    }
  }
}

}  // namespace
}  // namespace mooncake::store::master
