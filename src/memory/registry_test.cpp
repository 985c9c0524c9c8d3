// Proves the registry against a plain list, by random operations, and that what isn't mapped, wraps
// around or belongs to guarded memory is refused.
#include "memory/registry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <map>
#include <thread>
#include <vector>

#include "memory/pool.h"

namespace mooncake::memory {
namespace {

constexpr std::uint64_t kPage = 4096;

// Address space to register from; page `hole` of it isn't mapped.
class Memory {
 public:
  explicit Memory(std::uint64_t pages, std::uint64_t hole = ~std::uint64_t{0})
      : size_(pages * kPage),
        base_(static_cast<std::byte*>(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (hole < pages) ::munmap(base_ + hole * kPage, kPage);
  }
  ~Memory() { ::munmap(base_, size_); }
  std::uint64_t at(std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t>(base_) + offset;
  }

 private:
  std::uint64_t size_;
  std::byte* base_;
};

std::function<std::uint64_t()> counting_keys() {
  return [next = std::uint64_t{0}]() mutable { return next++; };
}

TEST(Registry, AdmitsInsideTheRegionUnderItsKey) {
  Memory memory(4);
  Registry registry;
  const auto region = registry.add(memory.at(100), 5000);
  ASSERT_TRUE(region);
  EXPECT_NE(region->key, RegionKey{});
  EXPECT_TRUE(registry.admit(memory.at(100), 5000, region->key));
  EXPECT_TRUE(registry.admit(memory.at(5099), 1, region->key));
  for (const auto& [base, length] : std::map<std::uint64_t, std::uint64_t>{
           {memory.at(99), 2},
           {memory.at(100), 5001},
           {memory.at(101), ~std::uint64_t{0} - 10},
           {memory.at(102), ~std::uint64_t{0} - memory.at(102) + 1},
           {memory.at(103), 0},
           {0, 1}}) {
    const auto refused = registry.admit(base, length, region->key);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kAddressNotRegistered);
  }
  const auto wrong = registry.admit(
      memory.at(100), 1, static_cast<RegionKey>(static_cast<std::uint64_t>(region->key) + 1));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), Code::kRegionKeyMismatch);
}

TEST(Registry, EndsAccessesWithTheirRegistration) {
  Memory memory(1);
  Registry registry;
  const auto region = *registry.add(memory.at(0), kPage);
  auto access = *registry.admit(memory.at(0), 10, region.key);
  auto other = *registry.admit(memory.at(0), 10, region.key);
  EXPECT_TRUE(access.live());
  const auto removed = registry.remove(memory.at(0));
  ASSERT_TRUE(removed);
  EXPECT_FALSE(access.live());
  EXPECT_EQ(removed->accesses(), 2u);
  other = std::move(access);
  EXPECT_EQ(removed->accesses(), 1u);
  other = Access();
  EXPECT_EQ(removed->accesses(), 0u);
  EXPECT_FALSE(other.live());
  EXPECT_EQ(registry.admit(memory.at(0), 10, region.key).error().code(),
            Code::kAddressNotRegistered);
  EXPECT_EQ(registry.remove(memory.at(0)).error().code(), Code::kAddressNotRegistered);
}

TEST(Registry, KeepsWhatIsItsOwnApart) {
  const auto pool = *Pool::create({.size = 2 * kPage, .name = "own"});
  const auto base = reinterpret_cast<std::uint64_t>(pool->data());
  Registry registry;
  registry.share_pool(*pool);
  const auto own = *registry.add_own(base, kPage);
  EXPECT_EQ(registry.first_address(), base);
  const auto refused = registry.remove(base);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find(fmt::format("{:#x}", base)), std::string::npos);
  EXPECT_NE(refused.error().message().find("free_managed_buffer"), std::string::npos);
  EXPECT_EQ(registry.remove(base + 1).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(registry.admit(base, kPage, own.key));

  const auto users = *registry.add(base, kPage);
  EXPECT_TRUE(registry.remove(base));
  EXPECT_FALSE(registry.admit(base, 1, users.key));
  EXPECT_TRUE(registry.admit(base, 1, own.key));
  EXPECT_EQ(registry.remove(base).error().code(), Code::kInvalidArgument);

  ASSERT_TRUE(registry.add(base, kPage));
  EXPECT_TRUE(registry.remove_own(base));
  EXPECT_EQ(registry.admit(base, 1, own.key).error().code(), Code::kRegionKeyMismatch);
  EXPECT_EQ(registry.remove_own(base).error().code(), Code::kAddressNotRegistered);
  EXPECT_TRUE(registry.remove(base));
}

TEST(Registry, CountsEqualRegistrations) {
  Memory memory(1);
  Registry registry;
  const auto first = *registry.add(memory.at(0), kPage);
  const auto second = *registry.add(memory.at(0), kPage);
  EXPECT_NE(first.key, second.key);
  EXPECT_EQ(registry.find(memory.at(0), 1)->key, first.key);
  ASSERT_TRUE(registry.remove(memory.at(0)));
  EXPECT_TRUE(registry.admit(memory.at(0), 1, first.key));
  EXPECT_EQ(registry.admit(memory.at(0), 1, second.key).error().code(), Code::kRegionKeyMismatch);
  ASSERT_TRUE(registry.remove(memory.at(0)));
  EXPECT_FALSE(registry.find(memory.at(0), 1));
  EXPECT_EQ(registry.generation(), 4u);
}

TEST(Registry, RefusesWhatIsNoRange) {
  Memory memory(8, 4);
  Registry registry;
  EXPECT_EQ(registry.add(memory.at(0), 0).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry.add(memory.at(0), ~std::uint64_t{0}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry.add(0, 10).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry.add(memory.at(3 * kPage), 2 * kPage).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry.add(memory.at(4 * kPage + 10), 1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry.add(memory.at(0), 8 * kPage).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(registry.add(memory.at(3), 4 * kPage - 3));
  EXPECT_TRUE(registry.add(memory.at(5 * kPage), 3 * kPage));
  EXPECT_EQ(registry.size(), 2u);
}

TEST(Registry, GuardedMemoryIsExclusive) {
  Memory memory(8);
  Registry registry;
  const std::shared_ptr<ExtentTable> extents = *ExtentTable::create(2 * kPage);
  ASSERT_TRUE(registry.add(memory.at(0), kPage));
  EXPECT_FALSE(registry.add(memory.at(kPage - 1), kPage, "*", Permission::kReadWrite, extents));
  ASSERT_TRUE(registry.add(memory.at(2 * kPage), 2 * kPage, "*", Permission::kReadWrite, extents));
  EXPECT_FALSE(registry.add(memory.at(0), 3 * kPage));
  EXPECT_FALSE(registry.add(memory.at(2 * kPage), 2 * kPage, "*", Permission::kReadWrite, extents));
  EXPECT_TRUE(registry.add(memory.at(4 * kPage), kPage));
  EXPECT_EQ(registry.find(memory.at(2 * kPage), 10)->extents, extents);
  EXPECT_EQ(registry.first_address(), memory.at(0));
  ASSERT_TRUE(registry.remove(memory.at(0)));
  EXPECT_EQ(registry.first_address(), memory.at(4 * kPage)) << "guarded memory is not shown";
  ASSERT_TRUE(registry.remove(memory.at(2 * kPage)));
  EXPECT_TRUE(registry.add(memory.at(0), 8 * kPage));
}

TEST(Registry, RegistersAllRangesOrNone) {
  Memory memory(8, 4);
  Registry registry;
  const std::shared_ptr<ExtentTable> extents = *ExtentTable::create(kPage);
  ASSERT_TRUE(registry.add(memory.at(3 * kPage), kPage, "*", Permission::kReadWrite, extents));
  const std::uint64_t generation = registry.generation();
  const Registry::Range good{memory.at(0), kPage}, same = good, other{memory.at(kPage), kPage};
  for (const Registry::Range bad : {Registry::Range{memory.at(0), 0},
                                    {memory.at(4 * kPage), 1},
                                    {memory.at(2 * kPage), kPage + 1}}) {
    const Registry::Range ranges[] = {good, bad, other};
    EXPECT_EQ(registry.add_all(ranges).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(registry.generation(), generation);
    EXPECT_FALSE(registry.covers(good.base, 1));
  }
  const Registry::Range ranges[] = {good, same, other};
  ASSERT_TRUE(registry.add_all(ranges, "cpu:0"));
  EXPECT_EQ(registry.size(), 4u);
  EXPECT_EQ(registry.find(other.base, kPage)->location, "cpu:0");
  ASSERT_TRUE(registry.add_all({}));
  EXPECT_EQ(registry.size(), 4u);
}

RC_GTEST_PROP(Registry, EqualsAList, ()) {
  static const Memory memory(64);
  Registry registry(counting_keys());
  std::vector<Region> regions;  // oldest first
  std::vector<std::pair<Region, Access>> accesses;
  const int operations = *rc::gen::inRange(0, 150);
  for (int i = 0; i < operations; ++i) {
    const auto base = memory.at(*rc::gen::inRange<std::uint64_t>(0, 60));
    const auto length = *rc::gen::inRange<std::uint64_t>(1, 60);
    if (*rc::gen::inRange(0, 3) != 0) {
      auto region = registry.add(base, length);
      RC_ASSERT(region.has_value());
      if (auto access = registry.admit(base, length, region->key)) {
        accesses.emplace_back(*region, *std::move(access));
      }
      regions.push_back(*std::move(region));
    } else {
      const auto youngest = std::find_if(regions.rbegin(), regions.rend(),
                                         [&](const Region& r) { return r.base == base; });
      RC_ASSERT(registry.remove(base).has_value() == (youngest != regions.rend()));
      if (youngest != regions.rend()) regions.erase(std::next(youngest).base());
    }
    const auto covers = [&](const Region& r) {
      return r.base <= base && base + length <= r.base + r.length;
    };
    const auto found = registry.find(base, length);
    RC_ASSERT(found.has_value() == std::any_of(regions.begin(), regions.end(), covers));
    RC_ASSERT(!found || covers(*found));
    RC_ASSERT(registry.covers(base, length) == found.has_value());
    RC_ASSERT(registry.size() == regions.size());
    RC_ASSERT(registry.first_address() == (regions.empty() ? 0 : regions.front().base));
    for (const auto& [region, access] : accesses) {
      const bool there = std::any_of(regions.begin(), regions.end(),
                                     [&](const Region& r) { return r.key == region.key; });
      RC_ASSERT(access.live() == there);
    }
  }
}

// Registering, finding and admitting from several threads; for ThreadSanitizer.
TEST(Registry, IsThreadSafe) {
  Memory memory(4);
  Registry registry;
  std::vector<std::thread> threads;
  for (std::uint64_t id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      for (int i = 0; i < 300; ++i) {
        const auto base = memory.at(id * kPage);
        const auto region = registry.add(base, kPage);
        ASSERT_TRUE(region);
        const auto access = registry.admit(base, 10, region->key);
        ASSERT_TRUE(access);
        ASSERT_TRUE(access->live());
        ASSERT_TRUE(registry.find(base + 5, 5));
        ASSERT_TRUE(registry.remove(base));
        ASSERT_FALSE(access->live());
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(registry.size(), 0u);
}

// A copy of this process's own holds back whoever takes the range, not who takes another.
TEST(Registry, UsesAreWaitedFor) {
  Registry registry;
  const Memory memory(2);
  ASSERT_TRUE(registry.add(memory.at(0), kPage));
  ASSERT_TRUE(registry.add(memory.at(kPage), kPage));
  EXPECT_FALSE(registry.use(memory.at(0), kPage + 1)) << "no one region has it";
  EXPECT_FALSE(registry.use(memory.at(0), 0));
  Use use = registry.use(memory.at(100), 10);
  ASSERT_TRUE(use);
  EXPECT_EQ(use.region().base, memory.at(0));
  EXPECT_TRUE(registry.remove(memory.at(kPage))->is_clear());
  auto removed = registry.remove(memory.at(0));
  ASSERT_TRUE(removed);
  EXPECT_FALSE(use.live());
  EXPECT_FALSE(removed->is_clear());
  EXPECT_FALSE(registry.use(memory.at(100), 10));
  use = {};
  EXPECT_TRUE(removed->is_clear());
}

}  // namespace
}  // namespace mooncake::memory
