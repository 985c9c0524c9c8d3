// Eviction by a full core under each policy: as many go as are put, none that is leased, and a put
// fails only when all of them are (case C21, small; the policies' own work is counted in
// eviction/policies_test.cpp).
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr int kObjects = 2000;
constexpr int kLeased = 1500;

struct Eviction : testing::TestWithParam<EvictionKind> {
  static CoreOptions options() {
    CoreOptions options = test_options();
    options.eviction_policy = GetParam();
    return options;
  }
  void SetUp() override {
    f.check = false;
    ASSERT_EQ(f.mount(Fixture::kOne, {Fixture::segment(1, kObjects)}), Code::kOk);
    put(kObjects);
    ASSERT_EQ(f.core.totals().evicted_objects, 0u);
  }
  void TearDown() override {
    const Result<void> sound = f.core.verify();
    EXPECT_TRUE(sound) << sound.error().message();
  }

  void put(int count) {
    for (int i = 0; i < count; ++i, f.now += std::chrono::microseconds(1))
      ASSERT_EQ(f.put(Fixture::kOne, std::to_string(next++)).code, Code::kOk);
  }
  // Of the keys [first, first + count), asked for in one batch.
  int present(int first, int count) {
    std::vector<std::string> keys;
    for (int i = 0; i < count; ++i)
      keys.push_back(std::to_string(first + i));
    std::vector<CommandItem> items(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i)
      items[i].key = keys[i];
    Command command;
    command.kind = CommandKind::kExist;
    command.items = items;
    int found = 0;
    for (const Effect& effect : f.apply(command))
      found += effect.code == Code::kOk;
    return found;
  }

  Fixture f{options()};
  int next = 0;
};
INSTANTIATE_TEST_SUITE_P(All, Eviction, testing::ValuesIn(kEvictionKinds),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

TEST_P(Eviction, C21AsManyGoAsArePutAndNoneThatIsLeased) {
  ASSERT_EQ(present(0, kLeased), kLeased);
  for (int round = 1; round <= 8; ++round) {
    put(250);
    ASSERT_EQ(present(0, kLeased), kLeased);
    ASSERT_EQ(f.core.totals().evicted_objects, static_cast<std::uint64_t>(round * 250));
  }
  EXPECT_EQ(f.core.totals().objects, static_cast<std::uint64_t>(kObjects));
  EXPECT_EQ(f.core.totals().grant_shortages, 0u);

  // The rest is leased too: nothing may go, until the first lease ends.
  ASSERT_EQ(present(kLeased, next - kLeased), kObjects - kLeased);
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(f.grant(Fixture::kOne, "more", kUnit).code, Code::kNoSpace);
  ASSERT_TRUE(f.effects.shortage);
  EXPECT_EQ(f.effects.shortage->evictable, 0u);
  EXPECT_EQ(f.effects.shortage->held, kObjects * kUnit);
  f.now += test_options().lease_ttl;
  put(kObjects);
  EXPECT_EQ(f.core.totals().evicted_objects, 2000u + kObjects);
}

// A pin's end moves an object from one set of candidates to the other, whatever waits aside there.
TEST_P(Eviction, SoftPinnedObjectsGoOnlyWhenNothingElseMay) {
  f.terms.soft_pin = SoftPin::kEnable;
  f.terms.soft_pin_ttl = std::chrono::seconds(15);
  put(kObjects / 2);
  f.terms = {};
  ASSERT_EQ(f.core.totals().soft_pinned_objects, 1000u);
  put(kObjects / 2);  // the ordinary ones that are left
  ASSERT_EQ(f.core.totals().soft_pinned_objects, 1000u);
  ASSERT_EQ(present(next - 1000, 1000), 1000);
  ASSERT_EQ(present(kObjects, 500), 500);  // pinned, and leased
  put(100);  // one pinned object goes for the first, and the one before for each other
  EXPECT_EQ(f.core.totals().soft_pinned_objects, 999u);
  for (int i = 0; i < 499; ++i) {
    ASSERT_EQ(present(next - 1, 1), 1);
    put(1);
  }
  EXPECT_EQ(f.core.totals().soft_pinned_objects, 500u);
  EXPECT_EQ(present(kObjects, 500), 500);
  f.pass(std::chrono::seconds(30), {Fixture::kOne});
  EXPECT_EQ(f.core.totals().soft_pinned_objects, 0u);
  put(kObjects);
  EXPECT_EQ(present(kObjects, 1000), 0);
}

}  // namespace
}  // namespace mooncake::store::master
