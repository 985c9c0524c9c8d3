// Proves that a budget is never overdrawn by those who ask, counts by use, and says who has it.
#include "base/budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace mooncake::base {
namespace {

TEST(Budget, RefusesWhatIsOverTheLimitAndSaysWhoHasIt) {
  Budget budget(100);
  EXPECT_TRUE(budget.take(MemoryUse::kBuffers, 60, "first"));
  const auto refused = budget.take(MemoryUse::kSegments, 41, "second");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kOutOfMemory);
  EXPECT_EQ(refused.error().detail(),
            "second asks for 41 bytes; of the 100 of memory_budget (MOONCAKE_MEMORY_BUDGET) 60 are "
            "in use (buffers 60)");
  EXPECT_FALSE(budget.take(MemoryUse::kSegments, ~std::uint64_t{0}, "all"));
  EXPECT_EQ(budget.used(MemoryUse::kSegments), 0u);
  budget.give_back(MemoryUse::kBuffers, 60);
  EXPECT_TRUE(budget.take(MemoryUse::kSegments, 100, "third"));
}

TEST(Budget, WhatIsThereCountsThoughNobodyAsked) {
  Budget budget(100);
  EXPECT_TRUE(budget.has_room(100));
  budget.add(MemoryUse::kDeadMappings, 150);
  EXPECT_EQ(budget.used(), 150u);
  EXPECT_FALSE(budget.has_room(0));
  EXPECT_FALSE(budget.take(MemoryUse::kBuffers, 1, "one"));
  budget.give_back(MemoryUse::kDeadMappings, 150);
  EXPECT_TRUE(budget.take(MemoryUse::kBuffers, 1, "one"));
  EXPECT_FALSE(budget.has_room(100));
}

TEST(Budget, AddressSpaceIsShownAndNotBounded) {
  Budget budget(100);
  budget.add(MemoryUse::kMappings, 1000);
  EXPECT_EQ(budget.used(MemoryUse::kMappings), 1000u);
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_TRUE(budget.take(MemoryUse::kBuffers, 100, "all"));
  budget.give_back(MemoryUse::kMappings, 1000);
  EXPECT_EQ(budget.used(), 100u);
}

TEST(Budget, CountsFromManyThreads) {
  Budget budget(1000);
  std::vector<std::thread> threads;
  std::atomic<int> taken{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k)
        taken += budget.take(MemoryUse::kBuffers, 1, "one") ? 1 : 0;
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(taken, 1000);
  EXPECT_EQ(budget.used(), 1000u);
  EXPECT_EQ(budget.used(MemoryUse::kBuffers), 1000u);
}

}  // namespace
}  // namespace mooncake::base
