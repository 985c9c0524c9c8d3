// ManagedMemory against a source that hands out numbers: classes, growth, what is given back, and
// random use held against a list of what is in use. The memory itself is never touched.
#include "transfer/managed_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace mooncake::transfer {
namespace {

constexpr std::uint64_t kKi = 1024, kMi = kKi * kKi;

struct FakeSource {
  std::map<std::uint64_t, std::uint64_t> slabs;  // size by address
  std::vector<std::uint64_t> asked;
  std::uint64_t next = 1ull << 40;
  std::uint64_t limit = ~0ull;                  // of one slab
  std::map<std::uint64_t, std::uint64_t> open;  // size by address
  std::set<std::uint64_t> copied;               // buffers in which a peer is
  std::uint64_t looks = 0;                      // at those
  bool refuses_to_open = false;

  ManagedMemory::Source source() {
    return {
        [this](std::uint64_t size) -> Result<void*> {
          asked.push_back(size);
          if (size > limit) return fail(Code::kOutOfMemory);
          const std::uint64_t address = next;
          next += size + 2 * kMi;
          slabs.emplace(address, size);
          return reinterpret_cast<void*>(address);
        },
        [this](void* slab) { EXPECT_EQ(slabs.erase(reinterpret_cast<std::uint64_t>(slab)), 1u); },
        [this](void* buffer, std::uint64_t size) -> Result<void> {
          if (refuses_to_open) return fail(Code::kInvalidArgument);
          EXPECT_TRUE(open.emplace(reinterpret_cast<std::uint64_t>(buffer), size).second);
          return {};
        },
        [this](void* buffer) -> ManagedMemory::Cleared {
          const auto address = reinterpret_cast<std::uint64_t>(buffer);
          EXPECT_EQ(open.erase(address), 1u);
          if (!copied.contains(address)) return {};
          return [this, address] { return ++looks, !copied.contains(address); };
        }};
  }
  std::uint64_t total() const {
    std::uint64_t bytes = 0;
    for (const auto& [address, size] : slabs)
      bytes += size;
    return bytes;
  }
  bool holds(std::uint64_t begin, std::uint64_t size) const {
    auto slab = slabs.upper_bound(begin);
    if (slab == slabs.begin()) return false;
    --slab;
    return begin + size <= slab->first + slab->second;
  }
};

std::uint64_t number(void* address) { return reinterpret_cast<std::uint64_t>(address); }

TEST(ManagedMemory, CutsManyBuffersFromOneSlab) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  std::map<std::uint64_t, std::uint64_t> used;
  for (int i = 0; i < 4096; ++i) {
    const auto buffer = memory.allocate(8 * kKi + 1);  // class of 16 KiB
    ASSERT_TRUE(buffer);
    used.emplace(number(*buffer), 0);
  }
  EXPECT_EQ(used.size(), 4096u);
  EXPECT_EQ(fake.asked, std::vector<std::uint64_t>{64 * kMi});
  EXPECT_TRUE(memory.allocate(1));
  EXPECT_EQ(fake.asked.size(), 2u);
}

TEST(ManagedMemory, SlabsGrowWithWhatIsHeld) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(memory.allocate(256 * kMi));
  const std::vector<std::uint64_t> expected = {256 * kMi,  256 * kMi,  512 * kMi,  1024 * kMi,
                                               2048 * kMi, 2048 * kMi, 2048 * kMi, 2048 * kMi};
  EXPECT_EQ(fake.asked, expected);
  EXPECT_EQ(memory.held(), fake.total());
}

TEST(ManagedMemory, LargeBuffersAreSlabsOfTheirOwn) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  const std::uint64_t large = 256 * kMi + 1;
  const auto buffer = memory.allocate(large);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(fake.asked, std::vector<std::uint64_t>{large});
  EXPECT_EQ(memory.free(*buffer, 256 * kMi).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(memory.free(*buffer, large));
  EXPECT_EQ(memory.held(), 0u);
  EXPECT_TRUE(fake.slabs.empty());
}

TEST(ManagedMemory, WhatIsNotInUseIsRefused) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  EXPECT_EQ(memory.allocate(0).error().code(), Code::kInvalidArgument);
  const auto buffer = memory.allocate(20 * kKi);
  ASSERT_TRUE(buffer);
  EXPECT_FALSE(memory.free(nullptr, 20 * kKi));
  EXPECT_FALSE(memory.free(static_cast<char*>(*buffer) + 8 * kKi, 8 * kKi));
  EXPECT_FALSE(memory.free(*buffer, 16 * kKi));
  EXPECT_TRUE(memory.free(*buffer, 32 * kKi));  // the same class
  EXPECT_FALSE(memory.free(*buffer, 32 * kKi));
}

TEST(ManagedMemory, OneEmptySlabIsKept) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  std::vector<void*> buffers;
  for (int i = 0; i < 8; ++i)
    buffers.push_back(*memory.allocate(64 * kMi));
  EXPECT_EQ(fake.slabs.size(), 4u);
  for (void* const buffer : buffers)
    EXPECT_TRUE(memory.free(buffer, 64 * kMi));
  EXPECT_EQ(fake.slabs.size(), 1u);
  EXPECT_EQ(memory.held(), 64 * kMi);
  EXPECT_TRUE(memory.allocate(64 * kMi));
  EXPECT_EQ(fake.asked.size(), 4u);
}

TEST(ManagedMemory, SmallerSlabsWhenMemoryIsShort) {
  FakeSource fake;
  fake.limit = 4 * kMi;
  ManagedMemory memory(fake.source());
  EXPECT_TRUE(memory.allocate(8 * kKi));
  EXPECT_EQ(memory.held(), 4 * kMi);
  const auto none = memory.allocate(8 * kMi);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kOutOfMemory);
  EXPECT_TRUE(memory.allocate(2 * kMi));
}

TEST(ManagedMemory, BytesThatAPeerStillCopiesAreNotGivenOut) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  void* const first = *memory.allocate(32 * kMi);
  ASSERT_TRUE(memory.allocate(32 * kMi));
  fake.copied.insert(number(first));
  EXPECT_TRUE(memory.free(first, 32 * kMi));
  EXPECT_EQ(memory.quarantined(), 1u);
  EXPECT_FALSE(memory.free(first, 32 * kMi));
  void* const second = *memory.allocate(32 * kMi);
  EXPECT_NE(second, first);
  EXPECT_EQ(fake.asked.size(), 2u);  // there was no other room
  fake.copied.clear();
  EXPECT_EQ(*memory.allocate(32 * kMi), first);
  EXPECT_EQ(memory.quarantined(), 0u);
}

TEST(ManagedMemory, ASlabGoesWhenTheLastPeerHasLeftIt) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  const std::uint64_t large = 300 * kMi;
  void* const buffer = *memory.allocate(large);
  fake.copied.insert(number(buffer));
  EXPECT_TRUE(memory.free(buffer, large));
  EXPECT_EQ(memory.held(), large);
  EXPECT_EQ(fake.slabs.size(), 1u);
  fake.copied.clear();
  void* const small = *memory.allocate(1);
  EXPECT_EQ(fake.slabs.count(number(buffer)), 0u);
  EXPECT_EQ(memory.held(), 64 * kMi);
  EXPECT_TRUE(memory.free(small, 1));
}

TEST(ManagedMemory, ACallLooksAtFewOfManyInQuarantineAndAtAllInTurn) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  std::vector<void*> buffers;
  for (int i = 0; i < 100; ++i) {
    buffers.push_back(*memory.allocate(1));
    fake.copied.insert(number(buffers.back()));
  }
  for (void* const buffer : buffers)
    EXPECT_TRUE(memory.free(buffer, 1));
  fake.looks = 0;
  fake.copied.erase(number(buffers[99]));
  for (int i = 0; i < 13; ++i)
    EXPECT_TRUE(memory.allocate(1));
  EXPECT_EQ(fake.looks, 13u * 8u);
  EXPECT_EQ(memory.quarantined(), 99u);
}

TEST(ManagedMemory, ABufferThatPeersAreNotLetIntoIsNotLost) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  fake.refuses_to_open = true;
  EXPECT_EQ(memory.allocate(1).error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(memory.allocate(300 * kMi));
  EXPECT_EQ(memory.held(), 64 * kMi);
  fake.refuses_to_open = false;
  EXPECT_TRUE(memory.allocate(64 * kMi));
  EXPECT_EQ(memory.held(), 64 * kMi);
}

TEST(ManagedMemory, RandomUse) {
  FakeSource fake;
  ManagedMemory memory(fake.source());
  std::mt19937_64 random(7);
  std::map<std::uint64_t, std::uint64_t> used;  // length by address
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 || used.empty()) {
      const std::uint64_t length = 1 + random() % (16 * kKi << random() % 12);
      const auto buffer = memory.allocate(length);
      ASSERT_TRUE(buffer);
      const std::uint64_t begin = number(*buffer);
      ASSERT_TRUE(fake.holds(begin, length));
      const auto next = used.upper_bound(begin);
      ASSERT_TRUE(next == used.end() || begin + length <= next->first);
      ASSERT_TRUE(next == used.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= begin);
      used.emplace(begin, length);
    } else {
      auto victim = used.lower_bound(random() % fake.next);
      if (victim == used.end()) victim = used.begin();
      ASSERT_TRUE(memory.free(reinterpret_cast<void*>(victim->first), victim->second));
      used.erase(victim);
    }
    ASSERT_EQ(memory.held(), fake.total());
    ASSERT_EQ(fake.open.size(), used.size());
  }
  for (const auto& [begin, length] : used)
    ASSERT_TRUE(memory.free(reinterpret_cast<void*>(begin), length));
  EXPECT_EQ(fake.slabs.size(), 1u);
}

}  // namespace
}  // namespace mooncake::transfer
