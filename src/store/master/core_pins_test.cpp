// Pins: what is pinned hard is never evicted, what is pinned softly goes last, and only after its
// time is it like all others; eviction looks at none of it in vain.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"
#include "store/master/pin_ends.h"

namespace mooncake::store::master {
namespace {

using std::chrono::milliseconds;

constexpr ClientId kOne = Fixture::kOne;

struct Pins : testing::Test {
  void start(CoreOptions options = test_options()) {
    f.emplace(options);
    ASSERT_EQ(f->mount(kOne, {Fixture::segment(1, 10)}), Code::kOk);
  }
  Effect put_hard(std::string_view key, std::uint64_t size = kUnit) {
    const GrantTerms before = f->terms;
    f->terms.hard_pin = true;
    const Effect stored = f->put(kOne, key, size);
    f->terms = before;
    return stored;
  }
  Effect put_soft(std::string_view key, std::optional<base::Duration> ttl = std::nullopt) {
    const GrantTerms before = f->terms;
    f->terms.soft_pin = SoftPin::kEnable;
    f->terms.soft_pin_ttl = ttl;
    const Effect stored = f->put(kOne, key);
    f->terms = before;
    return stored;
  }
  void fill(int count, const std::string& name = "k") {
    for (int i = 0; i < count; ++i)
      ASSERT_EQ(f->put(kOne, name + std::to_string(i)).code, Code::kOk);
  }
  std::optional<Fixture> f;
};

TEST_F(Pins, WhatIsPinnedHardIsNeverEvicted) {
  start();
  put_hard("hard");
  fill(20);
  EXPECT_EQ(f->exist("hard"), Code::kOk);
  EXPECT_EQ(f->core.totals().evicted_objects, 11u);
  EXPECT_EQ(f->grant(kOne, "large", 10 * kUnit).code, Code::kNoSpace);
  ASSERT_TRUE(f->effects.shortage);
  EXPECT_EQ(f->effects.shortage->needed, 10 * kUnit);
  EXPECT_EQ(f->effects.shortage->pinned, kUnit);
  EXPECT_EQ(f->effects.shortage->evictable, 9 * kUnit);
  EXPECT_EQ(f->effects.shortage->held, 0u);
  f->now += std::chrono::hours(100);
  f->heartbeat(kOne);
  EXPECT_EQ(f->remove(kOne, "hard"), Code::kOk) << "it can be removed";
  EXPECT_EQ(f->grant(kOne, "large", 10 * kUnit).code, Code::kOk);
  EXPECT_EQ(f->core.totals().hard_pinned_objects, 0u);
}

TEST_F(Pins, ANoSpaceErrorTellsLeasesFromPins) {
  start();
  put_hard("hard");
  fill(9);
  f->now += kSecond;
  f->locate("hard");  // a lease on what is pinned changes nothing
  for (int i = 0; i < 4; ++i)
    f->locate("k" + std::to_string(i));
  EXPECT_EQ(f->grant(kOne, "large", 6 * kUnit).code, Code::kNoSpace);
  EXPECT_EQ(f->effects.shortage->pinned, kUnit);
  EXPECT_EQ(f->effects.shortage->held, 4 * kUnit);
  EXPECT_EQ(f->effects.shortage->evictable, 5 * kUnit);
  EXPECT_EQ(f->core.totals().evicted_objects, 0u) << "nothing goes in vain";
}

TEST_F(Pins, WhatIsPinnedSoftlyGoesLast) {
  start();
  put_soft("soft");
  fill(30);
  EXPECT_EQ(f->exist("soft"), Code::kOk);
  f->now += std::chrono::seconds(11);
  f->heartbeat(kOne);
  EXPECT_EQ(f->put(kOne, "large", 10 * kUnit).code, Code::kOk) << "nothing else was left";
  EXPECT_EQ(f->exist("soft"), Code::kObjectNotFound);
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 0u);
}

TEST_F(Pins, UnlessTheyMayNotGoAtAll) {
  CoreOptions options = test_options();
  options.evict_soft_pinned = false;
  start(options);
  put_soft("soft", milliseconds(60'000));
  fill(9);
  EXPECT_EQ(f->grant(kOne, "large", 10 * kUnit).code, Code::kNoSpace);
  EXPECT_EQ(f->effects.shortage->pinned, kUnit);
  EXPECT_EQ(f->effects.shortage->evictable, 9 * kUnit);
  f->pass(std::chrono::seconds(60));
  EXPECT_EQ(f->grant(kOne, "large", 10 * kUnit).code, Code::kOk);
}

TEST_F(Pins, APinEndsAtItsTimeWhateverIsRead) {
  start();
  put_soft("soft", milliseconds(5000));
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 1u);
  f->pass(std::chrono::seconds(4));
  f->locate("soft");
  f->pass(std::chrono::seconds(1));
  // Leased until 14 s, and the pin until then makes no difference.
  fill(12);
  EXPECT_EQ(f->exist("soft"), Code::kOk);
  f->pass(std::chrono::seconds(20));
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 0u);
  fill(10, "more");
  EXPECT_EQ(f->exist("soft"), Code::kObjectNotFound);
}

TEST_F(Pins, TheMastersTimeCountsWhereNoneIsGivenAndZeroIsNone) {
  CoreOptions options = test_options();
  options.soft_pin_ttl = std::chrono::seconds(7);
  start(options);
  put_soft("default");
  put_soft("none", milliseconds(0));
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 1u);
  f->pass(std::chrono::seconds(6));
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 1u);
  f->pass(std::chrono::seconds(1));
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 0u);
}

TEST_F(Pins, AnUpsertKeepsPinsUnlessItChangesThem) {
  start();
  put_hard("hard");
  put_soft("soft", milliseconds(5000));
  f->now += kSecond;
  f->upsert(kOne, "hard");
  f->upsert(kOne, "soft");
  EXPECT_EQ(f->core.totals().hard_pinned_objects, 1u);
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 1u);
  f->terms.soft_pin = SoftPin::kDisable;
  f->upsert(kOne, "hard");
  EXPECT_EQ(f->core.totals().hard_pinned_objects, 1u) << "immutable";
  f->upsert(kOne, "soft");
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 0u);
  f->terms.soft_pin = SoftPin::kEnable;
  f->terms.soft_pin_ttl = milliseconds(3000);
  f->upsert(kOne, "soft");
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 1u);
  f->terms = {};
  f->now += std::chrono::seconds(2);
  f->upsert(kOne, "soft");  // the deadline stays what it was
  f->pass(std::chrono::seconds(1));
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 0u);
  f->terms.hard_pin = true;
  f->upsert(kOne, "soft");
  f->terms = {};
  EXPECT_EQ(f->core.totals().hard_pinned_objects, 2u);
}

TEST_F(Pins, EvictionAheadOfNeedLeavesSoftPinsBelowTheHighMark) {
  CoreOptions options = test_options();
  options.eviction_high_watermark = 0.8;
  options.eviction_ratio = 0.3;
  start(options);
  for (int i = 0; i < 8; ++i)
    put_soft("s" + std::to_string(i));
  fill(2);
  f->tick();
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 8u);
  EXPECT_EQ(f->core.totals().objects, 8u);
  put_soft("s8");
  put_soft("s9");
  f->tick();
  EXPECT_EQ(f->core.totals().soft_pinned_objects, 8u) << "to the high mark, not to the low one";
}

TEST_F(Pins, ASegmentThatGoesTakesPinnedObjectsWithIt) {
  start();
  ASSERT_EQ(f->mount(Fixture::kTwo, {Fixture::segment(2, 10)}), Code::kOk);
  f->replicas = 2;
  put_hard("both");
  put_soft("soft");
  f->locate("soft");
  f->replicas = 1;
  for (int i = 0; i < 6; ++i)
    put_hard("h" + std::to_string(i));
  f->unmount(Fixture::kTwo);
  EXPECT_EQ(f->locate("both").replicas, 1);
  EXPECT_EQ(f->locate("soft").replicas, 1);
  EXPECT_EQ(f->core.totals().objects + f->core.totals().lost_objects, 8u);
}

// Pins that are gone long before their time must not pile up.
TEST_F(Pins, EndsOfPinsThatAreGoneAreForgotten) {
  PinEnds ends;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const std::uint64_t newest = 1'000'000 - i;
    ends.add({newest, 1}, 1, [&](const PinEnds::End& end) { return end.at == newest; });
    ASSERT_LE(ends.size(), 67u);
    ASSERT_TRUE(ends.holds(newest, 1));
  }
  EXPECT_FALSE(ends.any_by(990'000));
  ASSERT_TRUE(ends.any_by(990'001));
  EXPECT_EQ(ends.take().at, 990'001u);
}

}  // namespace
}  // namespace mooncake::store::master
