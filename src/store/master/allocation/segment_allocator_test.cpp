// The allocator against a map of bytes: what it hands out never overlaps, lies below the prepared
// limit, and what is given back can be had again, down to one range that fills the segment.
#include "store/master/allocation/segment_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"

namespace mooncake::store::master {
namespace {

void expect_sound(const SegmentAllocator& allocator) {
  const Result<void> sound = allocator.verify();
  ASSERT_TRUE(sound) << sound.error().message();
}

TEST(SegmentAllocator, AnObjectMayFillTheSegment) {
  SegmentAllocator allocator(1000);
  allocator.prepare(1000);
  const auto all = allocator.allocate(1000, 7);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->unit, 0u);
  EXPECT_EQ(allocator.owner(all->handle), 7u);
  EXPECT_EQ(allocator.free_units(), 0u);
  EXPECT_FALSE(allocator.allocate(1, 0));
  allocator.free(all->handle);
  EXPECT_FALSE(allocator.in_use(all->handle));
  EXPECT_FALSE(allocator.allocate(1001, 0));
  EXPECT_FALSE(allocator.allocate(0, 0));
  expect_sound(allocator);
}

TEST(SegmentAllocator, HandsOutPreparedUnitsOnly) {
  SegmentAllocator allocator(100);
  EXPECT_FALSE(allocator.allocate(1, 0));
  EXPECT_TRUE(allocator.fits_when_prepared(100));
  allocator.prepare(10);
  EXPECT_FALSE(allocator.allocate(11, 0));
  const auto first = allocator.allocate(8, 0);
  ASSERT_TRUE(first);
  EXPECT_TRUE(allocator.fits_when_prepared(92));
  EXPECT_FALSE(allocator.fits_when_prepared(93));
  allocator.prepare(5);  // does not shrink
  EXPECT_EQ(allocator.prepared(), 10u);
  allocator.prepare(20);  // joins what was free at the end
  const auto second = allocator.allocate(12, 0);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->unit, 8u);
  allocator.prepare(30);  // begins a new range behind one in use
  allocator.prepare(1000);
  EXPECT_EQ(allocator.prepared(), 100u);
  EXPECT_TRUE(allocator.allocate(80, 0));
  expect_sound(allocator);
}

TEST(SegmentAllocator, EqualBlocksLoseNothing) {
  for (const std::uint64_t units : {1u, 3u, 15u, 17u, 64u, 65u, 127u, 1000u}) {
    SegmentAllocator allocator(units * 50 + units - 1);
    allocator.prepare(allocator.capacity());
    std::vector<std::uint32_t> handles;
    while (const auto extent = allocator.allocate(units, 0))
      handles.push_back(extent->handle);
    EXPECT_EQ(handles.size(), 50u);
    // Whichever goes, another of the same size fits.
    base::Random random(units);
    for (int i = 0; i < 500; ++i) {
      std::uint32_t& handle = handles[random.below(handles.size())];
      allocator.free(handle);
      const auto extent = allocator.allocate(units, 0);
      ASSERT_TRUE(extent);
      handle = extent->handle;
    }
    expect_sound(allocator);
  }
}

TEST(SegmentAllocator, FindsABlockOfItsOwnClassBehindShorterOnes) {
  constexpr std::uint64_t kShort = 64;  // of one class with kLong
  constexpr std::uint64_t kLong = 70;
  constexpr int kBlocks = 20;
  SegmentAllocator allocator(kLong + 1 + kBlocks * (kShort + 1));
  allocator.prepare(allocator.capacity());
  std::vector<std::uint32_t> blocks = {allocator.allocate(kLong, 0)->handle};
  for (int i = 0; i < kBlocks; ++i) {
    ASSERT_TRUE(allocator.allocate(1, 0));
    blocks.push_back(allocator.allocate(kShort, 0)->handle);
  }
  ASSERT_TRUE(allocator.allocate(1, 0));
  for (const std::uint32_t block : blocks)
    allocator.free(block);
  const auto found = allocator.allocate(kLong, 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->unit, 0u);
  expect_sound(allocator);
}

TEST(SegmentAllocator, LargestSegment) {
  SegmentAllocator allocator(std::uint64_t{1} << 32);
  EXPECT_EQ(allocator.capacity(), SegmentAllocator::kMaxUnits);
  allocator.prepare(allocator.capacity());
  const auto all = allocator.allocate(SegmentAllocator::kMaxUnits, 0);
  ASSERT_TRUE(all);
  EXPECT_FALSE(allocator.allocate(1, 0));
  allocator.free(all->handle);
  ASSERT_TRUE(allocator.allocate(1, 0));
  const auto last = allocator.allocate(SegmentAllocator::kMaxUnits - 1, 0);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->unit, 1u);
  expect_sound(allocator);
}

// Random use. `map` has the owner of each unit.
void random_use(std::uint64_t seed) {
  base::Random random(seed);
  const std::uint64_t capacity = 50 + random.below(2000);
  SegmentAllocator allocator(capacity);
  std::vector<std::uint32_t> map(capacity, kNone);
  std::map<std::uint32_t, SegmentAllocator::Extent> live;  // by owner
  std::uint64_t prepared = 0;
  for (std::uint32_t step = 0; step < 2000; ++step) {
    if (random.chance(0.02)) {
      prepared = std::min(capacity, prepared + random.below(300));
      allocator.prepare(prepared);
    } else if (live.empty() || random.chance(0.55)) {
      const std::uint64_t units = 1 + random.below(random.chance(0.3) ? 200 : 12);
      const auto extent = allocator.allocate(units, step);
      if (!extent) continue;
      ASSERT_LE(extent->unit + units, prepared);
      ASSERT_EQ(allocator.units(extent->handle), units);
      for (std::uint64_t unit = extent->unit; unit < extent->unit + units; ++unit) {
        ASSERT_EQ(map[unit], kNone) << "seed " << seed << ": overlap at step " << step;
        map[unit] = step;
      }
      live.emplace(step, *extent);
    } else {
      const auto victim = std::next(live.begin(), static_cast<long>(random.below(live.size())));
      ASSERT_EQ(allocator.owner(victim->second.handle), victim->first);
      allocator.free(victim->second.handle);
      std::replace(map.begin(), map.end(), victim->first, kNone);
      live.erase(victim);
    }
    if (step % 50 == 0) expect_sound(allocator);
  }
  std::size_t seen = 0;
  allocator.for_each([&](std::uint32_t handle) {
    ++seen;
    EXPECT_EQ(live.at(allocator.owner(handle)).handle, handle);
  });
  EXPECT_EQ(seen, live.size());
  for (const auto& [owner, extent] : live)
    allocator.free(extent.handle);
  expect_sound(allocator);
  if (prepared == 0) return;
  const auto all = allocator.allocate(prepared, 1);
  ASSERT_TRUE(all) << "seed " << seed << ": freed memory did not come together";
  EXPECT_EQ(all->unit, 0u);
}

TEST(SegmentAllocator, RandomUseAgainstAMap) {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    random_use(seed);
}

}  // namespace
}  // namespace mooncake::store::master
