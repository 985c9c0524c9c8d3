// Proves that a range is pinned for as long as any of its pins lives, and with it its memory.
#include "memory/pinned_ranges.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace mooncake::memory {
namespace {

TEST(PinnedRanges, OverlapIsOfBytes) {
  const auto ranges = PinnedRanges::create();
  EXPECT_FALSE(ranges->overlaps(0, 1u << 20));
  const auto pin = ranges->add(4096, 5000);
  EXPECT_TRUE(ranges->overlaps(4096, 5000));
  EXPECT_TRUE(ranges->overlaps(0, 4097));
  EXPECT_TRUE(ranges->overlaps(4999, 10'000));
  EXPECT_TRUE(ranges->overlaps(4200, 4201));
  EXPECT_TRUE(ranges->overlaps(0, 1u << 20));
  EXPECT_FALSE(ranges->overlaps(0, 4096));
  EXPECT_FALSE(ranges->overlaps(5000, 10'000));
}

TEST(PinnedRanges, TheLastPinEndsIt) {
  const auto ranges = PinnedRanges::create();
  auto first = ranges->add(0, 100);
  auto second = ranges->add(0, 100);
  const auto other = ranges->add(4096, 4100);
  EXPECT_EQ(ranges->size(), 2u);
  first = {};
  EXPECT_TRUE(ranges->overlaps(50, 60));
  auto moved = std::move(second);
  EXPECT_FALSE(second);
  EXPECT_TRUE(ranges->overlaps(50, 60));
  moved = {};
  EXPECT_FALSE(ranges->overlaps(50, 60));
  EXPECT_TRUE(ranges->overlaps(4096, 4097));
}

TEST(PinnedRanges, APinKeepsTheMemory) {
  auto memory = std::make_shared<int>(7);
  const std::weak_ptr<int> there = memory;
  auto ranges = PinnedRanges::create(std::move(memory));
  auto pin = ranges->add(0, 4);
  ranges.reset();
  EXPECT_FALSE(there.expired());
  pin = {};
  EXPECT_TRUE(there.expired());
}

TEST(PinnedRanges, PinsEndOnAnyThread) {
  const auto ranges = PinnedRanges::create();
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&ranges, i] {
      for (int round = 0; round < 1000; ++round) {
        const auto own = ranges->add(i * 4096, i * 4096 + 10);
        const auto shared = ranges->add(1u << 20, (1u << 20) + 10);
        ASSERT_TRUE(ranges->overlaps(1u << 20, (1u << 20) + 1));
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(ranges->size(), 0u);
}

}  // namespace
}  // namespace mooncake::memory
