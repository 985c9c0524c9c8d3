// Random texts of every length come back as they were stored; emptied pages serve other lengths.
#include "store/master/key_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"

namespace mooncake::store::master {
namespace {

std::string text_of(std::uint64_t seed, std::size_t length) {
  base::Random random(seed);
  std::string text(length, ' ');
  for (char& c : text)
    c = static_cast<char>(random.next());
  return text;
}

TEST(KeyArena, EveryLength) {
  KeyArena arena;
  std::map<std::size_t, std::uint32_t> keys;
  for (std::size_t length = 1; length <= kMaxKeyLength; ++length) {
    keys[length] = arena.add(text_of(length, length));
  }
  for (const auto& [length, key] : keys) {
    ASSERT_EQ(arena.view(key, length), text_of(length, length));
  }
  ASSERT_TRUE(arena.verify());
  for (const auto& [length, key] : keys)
    arena.remove(key, length);
  ASSERT_TRUE(arena.verify());
  EXPECT_EQ(arena.texts(), 0u);
}

TEST(KeyArena, PagesAreReusedByOtherLengths) {
  KeyArena arena;
  std::size_t most = 0;
  for (std::size_t length = 40; length < 400; length += 7) {
    std::vector<std::uint32_t> keys;
    for (std::uint64_t i = 0; i < 5000; ++i)
      keys.push_back(arena.add(text_of(i, length)));
    most = std::max(most, arena.memory_bytes());
    for (const std::uint32_t key : keys)
      arena.remove(key, length);
  }
  ASSERT_TRUE(arena.verify());
  EXPECT_LT(most, 5000u * 450 + 300'000);
  EXPECT_LT(arena.memory_bytes(), 10'000u);
}

TEST(KeyArena, RandomUse) {
  base::Random random(5);
  KeyArena arena;
  struct Text {
    std::uint64_t seed;
    std::size_t length;
  };
  std::map<std::uint32_t, Text> live;
  for (std::uint64_t step = 0; step < 20000; ++step) {
    if (live.empty() || random.chance(0.6)) {
      const std::size_t length = 1 + random.below(random.chance(0.1) ? kMaxKeyLength : 100);
      const std::uint32_t key = arena.add(text_of(step, length));
      ASSERT_TRUE(live.emplace(key, Text{step, length}).second);
    } else {
      const auto victim = std::next(
          live.begin(), static_cast<long>(random.below(std::min<std::size_t>(live.size(), 50))));
      const auto& [key, text] = *victim;
      ASSERT_EQ(arena.view(key, text.length), text_of(text.seed, text.length));
      arena.remove(key, text.length);
      live.erase(victim);
    }
    if (step % 1000 == 0) {
      ASSERT_TRUE(arena.verify());
    }
  }
  for (const auto& [key, text] : live) {
    ASSERT_EQ(arena.view(key, text.length), text_of(text.seed, text.length));
  }
  EXPECT_EQ(arena.texts(), live.size());
}

}  // namespace
}  // namespace mooncake::store::master
