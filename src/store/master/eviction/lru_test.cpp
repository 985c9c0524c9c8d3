// Lru against a plain list: the victim is always the least recently used that is not held.
#include "store/master/eviction/lru.h"

#include <gtest/gtest.h>

#include <list>
#include <vector>

#include "base/random.h"

namespace mooncake::store::master {
namespace {

constexpr std::uint64_t kHold = 100;
constexpr std::uint32_t kNobody = 0xFFFFFFFF;

struct Items {
  struct Item {
    QueueLinks links;
    std::uint8_t bits = 0;
    std::uint64_t until = 0;
  };
  std::vector<Item>* items;
  QueueLinks& links(std::uint32_t i) const { return (*items)[i].links; }
  std::uint8_t& bits(std::uint32_t i) const { return (*items)[i].bits; }
  std::uint64_t until(std::uint32_t i) const { return (*items)[i].until; }
};

struct Fixture {
  void publish(std::uint32_t entry) {
    items[entry].until = now;
    policy.on_publish(entry);
    order.push_back(entry);
  }
  void access(std::uint32_t entry) {
    items[entry].until = now + kHold;
    policy.on_access(entry);
    order.remove(entry);
    order.push_back(entry);
  }
  void remove(std::uint32_t entry) {
    policy.on_remove(entry);
    order.remove(entry);
  }
  std::uint32_t expected() const {
    for (const std::uint32_t entry : order) {
      if (items[entry].until <= now) return entry;
    }
    return kNobody;
  }

  std::uint64_t now = 1000;
  std::vector<Items::Item> items = std::vector<Items::Item>(100);
  std::list<std::uint32_t> order;
  Lru<Items> policy{Items{&items}, kHold};
};

TEST(Lru, OldestFirst) {
  Fixture f;
  EXPECT_EQ(f.policy.next_victim(f.now), kNobody);
  for (std::uint32_t i = 0; i < 3; ++i, ++f.now)
    f.publish(i);
  EXPECT_EQ(f.policy.next_victim(f.now), 0u);
  f.access(0);
  EXPECT_EQ(f.policy.next_victim(f.now), 1u);
  f.now += kHold;  // 0 is held no more, but still the youngest
  EXPECT_EQ(f.policy.next_victim(f.now), 1u);
  f.remove(1);
  f.remove(2);
  EXPECT_EQ(f.policy.next_victim(f.now), 0u);
}

TEST(Lru, HeldOnesKeepTheirOrder) {
  Fixture f;
  for (std::uint32_t i = 0; i < 10; ++i, ++f.now)
    f.publish(i);
  for (std::uint32_t i = 0; i < 10; i += 2, ++f.now)
    f.access(i);
  for (std::uint32_t i = 1; i < 10; i += 2) {
    EXPECT_EQ(f.policy.next_victim(f.now), i);
    f.remove(i);
  }
  EXPECT_EQ(f.policy.next_victim(f.now), kNobody);
  f.now += kHold;
  for (std::uint32_t i = 0; i < 10; i += 2) {
    EXPECT_EQ(f.policy.next_victim(f.now), i);
    f.remove(i);
  }
}

TEST(Lru, RandomUseAgainstAList) {
  base::Random random(11);
  Fixture f;
  for (int step = 0; step < 50'000; ++step) {
    f.now += 1 + random.below(4);
    const auto entry = static_cast<std::uint32_t>(random.below(f.items.size()));
    const bool there = std::find(f.order.begin(), f.order.end(), entry) != f.order.end();
    if (!there) {
      f.publish(entry);
    } else if (random.chance(0.9)) {
      f.access(entry);
    } else {
      f.remove(entry);
    }
    const std::uint32_t victim = f.policy.next_victim(f.now);
    ASSERT_EQ(victim, f.expected());
    if (victim != kNobody && random.chance(0.3)) f.remove(victim);
    if (step % 1000 == 0) {
      ASSERT_EQ(f.policy.verify().value(), f.order.size());
    }
  }
}

}  // namespace
}  // namespace mooncake::store::master
