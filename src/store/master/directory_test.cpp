// The directory against a std::map, through all its growth; keys with equal hashes are told apart
// by their text.
#include "store/master/directory.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"

namespace mooncake::store::master {
namespace {

std::uint32_t insert(Directory& directory, const std::string& key) {
  const std::uint32_t entry = directory.insert(directory.hash(key), key);
  directory[entry].state = PutState::kPublished;
  return entry;
}

TEST(Directory, FindsWhatWasInserted) {
  Directory directory(1);
  const std::uint32_t a = insert(directory, "a");
  const std::uint32_t b = insert(directory, "b");
  EXPECT_EQ(directory.find(directory.hash("a"), "a"), a);
  EXPECT_EQ(directory.find(directory.hash("b"), "b"), b);
  EXPECT_EQ(directory.find(directory.hash("c"), "c"), kNoEntry);
  EXPECT_EQ(directory.key(directory[b]), "b");
  directory.erase(a);
  EXPECT_EQ(directory.find(directory.hash("a"), "a"), kNoEntry);
  EXPECT_EQ(directory.size(), 1u);
  EXPECT_TRUE(directory.verify());
}

TEST(Directory, EqualHashesAreToldApart) {
  Directory directory(1);
  const base::Hash128 hash{7, 9};
  std::map<std::string, std::uint32_t> entries;
  for (int i = 0; i < 100; ++i) {
    const std::string key = "key" + std::to_string(i);
    entries[key] = directory.insert(hash, key);
    directory[entries[key]].state = PutState::kPublished;
  }
  for (const auto& [key, entry] : entries)
    EXPECT_EQ(directory.find(hash, key), entry);
  EXPECT_EQ(directory.find(hash, "other"), kNoEntry);
  for (const auto& [key, entry] : entries)
    directory.erase(entry);
  EXPECT_EQ(directory.find(hash, "key1"), kNoEntry);
  EXPECT_EQ(directory.size(), 0u);
}

TEST(Directory, RandomUseAgainstAMap) {
  base::Random random(3);
  Directory directory(random.next());
  std::map<std::string, std::uint32_t> live;
  for (int step = 0; step < 200'000; ++step) {
    const std::string key = "k" + std::to_string(random.below(60'000));
    const auto found = live.find(key);
    const base::Hash128 hash = directory.hash(key);
    directory.prefetch_group(hash);
    directory.prefetch_entry(hash, true);
    directory.prefetch_text(hash);
    ASSERT_EQ(directory.find(hash, key), found == live.end() ? kNoEntry : found->second);
    if (found == live.end()) {
      live[key] = insert(directory, key);
    } else if (random.chance(0.7)) {
      directory.erase(found->second);
      live.erase(found);
    }
    if (step % 20'000 == 0) {
      ASSERT_TRUE(directory.verify());
    }
  }
  ASSERT_TRUE(directory.verify());
  EXPECT_EQ(directory.size(), live.size());
  std::size_t seen = 0;
  directory.for_each([&](std::uint32_t number, const Entry& entry) {
    EXPECT_EQ(live.at(std::string(directory.key(entry))), number);
    ++seen;
    return true;
  });
  EXPECT_EQ(seen, live.size());
}

// Steady state: as many come as go. The table must not grow, and stays sound.
TEST(Directory, ChurnDoesNotGrowTheTable) {
  Directory directory(9);
  std::vector<std::uint32_t> entries;
  for (int i = 0; i < 20'000; ++i)
    entries.push_back(insert(directory, std::to_string(i)));
  const Directory::Memory before = directory.memory_bytes();
  for (int i = 0; i < 200'000; ++i) {
    std::uint32_t& entry = entries[static_cast<std::size_t>(i) % entries.size()];
    directory.erase(entry);
    entry = insert(directory, std::to_string(i + 20'000));
  }
  EXPECT_TRUE(directory.verify());
  EXPECT_LE(directory.memory_bytes().table, before.table * 2);
  EXPECT_LE(directory.memory_bytes().entries, before.entries + 64);
}

}  // namespace
}  // namespace mooncake::store::master
