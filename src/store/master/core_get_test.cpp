// Locate, exist, remove, and the leases between them.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr ClientId kOne = Fixture::kOne;
constexpr ClientId kTwo = Fixture::kTwo;

struct Get : testing::Test {
  void SetUp() override {
    ASSERT_EQ(f.mount(kOne, {Fixture::segment(1, 100)}), Code::kOk);
    ASSERT_EQ(f.mount(kTwo), Code::kOk);
  }
  Fixture f;
};

TEST_F(Get, UnknownKeys) {
  EXPECT_EQ(f.exist("k"), Code::kObjectNotFound);
  EXPECT_EQ(f.exist(""), Code::kObjectNotFound);
  EXPECT_EQ(f.locate(std::string(10'000, 'k')).code, Code::kObjectNotFound);
  EXPECT_EQ(f.remove(kOne, "k"), Code::kObjectNotFound);
}

TEST_F(Get, RemoveIsRefusedWhileLeased) {
  f.put(kOne, "k");
  EXPECT_EQ(f.locate("k").code, Code::kOk);
  f.now += std::chrono::milliseconds(9'999);
  EXPECT_EQ(f.remove(kOne, "k"), Code::kObjectHasLease);
  f.now += std::chrono::milliseconds(1);
  EXPECT_EQ(f.remove(kOne, "k"), Code::kOk);
  EXPECT_EQ(f.exist("k"), Code::kObjectNotFound);
  EXPECT_EQ(f.core.totals().allocated_bytes, 0u);
  EXPECT_EQ(f.count(Decision::Kind::kRemoved), 1);
}

TEST_F(Get, ForceSkipsTheLeaseOnly) {
  f.force = true;
  f.put(kOne, "k");
  f.locate("k");
  EXPECT_EQ(f.remove(kTwo, "k"), Code::kOk);
  f.grant(kOne, "open", 1);
  EXPECT_EQ(f.remove(kOne, "open"), Code::kReplicaNotReady);
}

TEST_F(Get, AFreshObjectHasNoLease) {
  f.put(kOne, "k");
  EXPECT_EQ(f.remove(kOne, "k"), Code::kOk);
}

TEST_F(Get, AProbeTakesALease) {
  f.put(kOne, "k");
  EXPECT_EQ(f.exist("k"), Code::kOk);
  EXPECT_EQ(f.remove(kOne, "k"), Code::kObjectHasLease);
}

// Case C13: whoever insists on a remove succeeds, however often the key is probed.
TEST_F(Get, ProbesDoNotKeepAKeyForEver) {
  f.put(kOne, "k");
  f.locate("k");
  int refused = 0;
  while (f.exist("k") == Code::kOk && f.remove(kOne, "k") == Code::kObjectHasLease) {
    ++refused;
    f.now += std::chrono::milliseconds(100);
    ASSERT_LE(refused, 100);
  }
  EXPECT_EQ(refused, 100);
  EXPECT_EQ(f.exist("k"), Code::kObjectNotFound);
}

TEST_F(Get, AReaderStillExtendsTheLeaseOfAKeyThatSomebodyWantsRemoved) {
  f.put(kOne, "k");
  f.locate("k");
  EXPECT_EQ(f.remove(kOne, "k"), Code::kObjectHasLease);
  f.now += std::chrono::seconds(9);
  f.locate("k");
  f.now += std::chrono::seconds(9);
  EXPECT_EQ(f.exist("k"), Code::kOk);  // extends again since the locate
  EXPECT_EQ(f.remove(kOne, "k"), Code::kObjectHasLease);
  f.now += std::chrono::seconds(9);
  f.exist("k");
  f.now += std::chrono::seconds(1);
  EXPECT_EQ(f.remove(kOne, "k"), Code::kOk);
}

TEST_F(Get, ReadersNeedNotBeMounted) {
  f.put(kOne, "k");
  CommandItem item;
  item.key = "k";
  EXPECT_EQ(f.one(CommandKind::kExist, ClientId{77}, item).code, Code::kOk);
  EXPECT_EQ(f.one(CommandKind::kLocate, ClientId{}, item).code, Code::kOk);
}

TEST_F(Get, LargeBatchesOfRepeatedKeys) {
  for (int i = 0; i < 50; ++i)
    f.put(kOne, "k" + std::to_string(i));
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i)
    keys.push_back("k" + std::to_string(i * 7 % 100));
  std::vector<CommandItem> items(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    items[i].key = keys[i];
  Command command;
  command.kind = CommandKind::kExist;
  command.items = items;
  const std::vector<Effect> effects = f.apply(command);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(effects[i].code, i * 7 % 100 < 50 ? Code::kOk : Code::kObjectNotFound);
  }
}

TEST_F(Get, KeysAreListed) {
  for (const char* key : {"a", "b", "c"})
    f.put(kOne, key);
  f.grant(kOne, "open", 7);
  EXPECT_EQ(f.remove(kOne, "b"), Code::kOk);
  std::string all;
  std::uint32_t cursor = 0;
  int steps = 0;
  for (; cursor != kSweepEnd; ++steps)
    cursor = f.core.visit_keys(cursor, 1, [&](std::string_view key) { all += key; });
  EXPECT_EQ(all, "ac");
  EXPECT_EQ(steps, 4) << "one entry at a time";
  EXPECT_EQ(f.core.visit_keys(99, 1, [](std::string_view) { FAIL(); }), kSweepEnd);
}

TEST_F(Get, APeekTakesNoLease) {
  const Effect put = f.put(kOne, "a", 5);
  f.now += kSecond;
  const Effect seen = f.core.peek("a");
  EXPECT_EQ(seen.version, put.version);
  EXPECT_EQ(seen.size, 5u);
  ASSERT_EQ(seen.replicas, 1);
  EXPECT_EQ(seen.placements[0], put.placements[0]);
  EXPECT_EQ(f.remove(kOne, "a"), Code::kOk);
  EXPECT_EQ(f.core.peek("a").code, Code::kObjectNotFound);
  f.grant(kOne, "open", 7);
  EXPECT_EQ(f.core.peek("open").code, Code::kObjectNotFound);
}

}  // namespace
}  // namespace mooncake::store::master
