// Proves IntervalIndex against a plain list, by random operations, and that it stays shallow by
// speed.
#include "memory/interval_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace mooncake::memory {
namespace {

struct Item {
  std::uint64_t begin, end;
  int value;
};

// Of those that contain the range: the one that begins first, of equals the oldest.
const Item* covering(const std::vector<Item>& items, std::uint64_t begin, std::uint64_t end) {
  const Item* best = nullptr;
  for (const Item& item : items) {
    if (item.begin > begin || item.end < end) continue;
    if (!best || item.begin < best->begin) best = &item;
  }
  return best;
}

bool overlapping(const std::vector<Item>& items, std::uint64_t begin, std::uint64_t end) {
  for (const Item& item : items) {
    if (item.begin < end && begin < item.end) return true;
  }
  return false;
}

std::optional<int> take_youngest(std::vector<Item>& items, std::uint64_t begin) {
  for (auto it = items.rbegin(); it != items.rend(); ++it) {
    if (it->begin != begin) continue;
    const int value = it->value;
    items.erase(std::next(it).base());
    return value;
  }
  return std::nullopt;
}

TEST(IntervalIndex, TakesTheYoungestThatIsWanted) {
  IntervalIndex<int> index;
  for (int i = 0; i < 100; ++i)
    index.insert(10, 20 + static_cast<std::uint64_t>(i), i);
  index.insert(11, 500, 3);
  const auto divides = [](int divisor) { return [divisor](int i) { return i % divisor == 0; }; };
  for (int i = 99; i >= 0; i -= 3)
    EXPECT_EQ(index.take_youngest(10, divides(3)), i);
  EXPECT_EQ(index.take_youngest(10, divides(3)), std::nullopt);
  EXPECT_EQ(index.size(), 67u);
  EXPECT_EQ(*index.covering(10, 118), 98);
  EXPECT_EQ(*index.covering(11, 500), 3);
}

RC_GTEST_PROP(IntervalIndex, EqualsAList, ()) {
  IntervalIndex<int> index;
  std::vector<Item> items;
  const int operations = *rc::gen::inRange(0, 200);
  for (int i = 0; i < operations; ++i) {
    const auto begin = *rc::gen::inRange<std::uint64_t>(0, 40);
    const auto end = begin + *rc::gen::inRange<std::uint64_t>(1, 20);
    if (*rc::gen::inRange(0, 3) == 0) {
      RC_ASSERT(index.take_youngest(begin) == take_youngest(items, begin));
    } else {
      index.insert(begin, end, i);
      items.push_back({begin, end, i});
    }
    RC_ASSERT(index.size() == items.size());
    const auto from = *rc::gen::inRange<std::uint64_t>(0, 60);
    const auto to = from + *rc::gen::inRange<std::uint64_t>(1, 10);
    const Item* const expected = covering(items, from, to);
    const int* const found = index.covering(from, to);
    RC_ASSERT((found == nullptr) == (expected == nullptr));
    if (found) RC_ASSERT(*found == expected->value);
    RC_ASSERT((index.overlapping(from, to) != nullptr) == overlapping(items, from, to));
  }
}

// One interval that spans a hundred thousand small ones is found at once: a search that walks back
// over the small ones would need minutes for this.
TEST(IntervalIndex, FindsTheSpanningOneAmongManySmallOnes) {
  constexpr std::uint64_t kMany = 100'000;
  IntervalIndex<std::uint64_t> index;
  index.insert(0, kMany * 10, kMany);
  for (std::uint64_t i = 0; i < kMany; ++i)
    index.insert(i * 10 + 1, i * 10 + 5, i);
  for (std::uint64_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(*index.covering(i * 10 + 6, i * 10 + 8), kMany);
    ASSERT_EQ(*index.take_youngest(i * 10 + 1), i);
  }
  EXPECT_EQ(index.size(), 1u);
}

}  // namespace
}  // namespace mooncake::memory
