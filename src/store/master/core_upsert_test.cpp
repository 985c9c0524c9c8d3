// Upsert: readers find one whole version or the other and never none, publish order decides among
// the writers of a key, and whoever loses gives its room back.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr ClientId kOne = Fixture::kOne;
constexpr ClientId kTwo = Fixture::kTwo;

struct Upsert : testing::Test {
  void SetUp() override {
    ASSERT_EQ(f.mount(kOne, {Fixture::segment(1, 100)}), Code::kOk);
    ASSERT_EQ(f.mount(kTwo), Code::kOk);
  }
  Fixture f;
};

TEST_F(Upsert, OfANewKeyIsAPut) {
  const Effect stored = f.upsert(kOne, "k", 3 * kUnit);
  ASSERT_EQ(stored.code, Code::kOk);
  EXPECT_EQ(f.locate("k").version, stored.version);
  EXPECT_EQ(f.core.totals().objects, 1u);
  EXPECT_EQ(f.count(Decision::Kind::kReplaced), 0);
}

// Case C11: a put leaves an existing key alone, an upsert replaces it, at once.
TEST_F(Upsert, C11TheOldVersionIsThereUntilTheNewOneIs) {
  const Effect old = f.put(kOne, "k", 2 * kUnit);
  EXPECT_EQ(f.grant(kTwo, "k", kUnit).code, Code::kObjectExists);
  const Effect granted = f.grant_upsert(kTwo, "k", 5 * kUnit);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_GT(granted.version, old.version);
  EXPECT_NE(granted.placements[0], old.placements[0]);
  const Effect before = f.locate("k");
  EXPECT_EQ(before.version, old.version);
  EXPECT_EQ(before.size, 2 * kUnit);
  EXPECT_EQ(f.core.totals().allocated_bytes, 7 * kUnit);
  EXPECT_EQ(f.grant(kOne, "k", kUnit).code, Code::kObjectExists) << "a put while an upsert is open";

  f.decisions.clear();
  ASSERT_EQ(f.publish(kTwo, "k", granted).code, Code::kOk) << "leases do not matter";
  ASSERT_EQ(f.decisions.size(), 2u);
  EXPECT_EQ(f.decisions[0].kind, Decision::Kind::kReplaced);
  EXPECT_EQ(f.decisions[0].version, old.version);
  EXPECT_EQ(f.decisions[1].kind, Decision::Kind::kPublished);
  const Effect after = f.locate("k");
  EXPECT_EQ(after.version, granted.version);
  EXPECT_EQ(after.size, 5 * kUnit);
  EXPECT_EQ(f.core.totals().objects, 1u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 5 * kUnit);
}

TEST_F(Upsert, PublishOrderDecides) {
  f.put(kOne, "k");
  const Effect first = f.grant_upsert(kOne, "k", kUnit);
  const Effect second = f.grant_upsert(kTwo, "k", 2 * kUnit);
  ASSERT_EQ(f.publish(kTwo, "k", second).code, Code::kOk);
  EXPECT_EQ(f.locate("k").version, second.version);
  ASSERT_EQ(f.publish(kOne, "k", first).code, Code::kOk);
  EXPECT_EQ(f.locate("k").version, first.version);
  EXPECT_EQ(f.core.totals().allocated_bytes, kUnit);
  EXPECT_EQ(f.publish(kTwo, "k", second).code, Code::kInvalidWrite) << "it has been replaced";
}

TEST_F(Upsert, APutWhoseKeyIsPublishedMeanwhileLoses) {
  const Effect put = f.grant(kOne, "k", 10 * kUnit);
  const Effect upsert = f.grant_upsert(kTwo, "k", kUnit);
  ASSERT_EQ(f.publish(kTwo, "k", upsert).code, Code::kOk);
  EXPECT_EQ(f.core.totals().allocated_bytes, 11 * kUnit);
  const auto arrived = f.incarnations(put);
  EXPECT_EQ(f.publish(kOne, "k", put, arrived, 700).code, Code::kObjectExists);
  EXPECT_EQ(f.publish(kOne, "k", put, arrived, 700).code, Code::kObjectExists) << "again";
  EXPECT_EQ(f.core.totals().allocated_bytes, kUnit);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
  EXPECT_EQ(f.locate("k").version, upsert.version);
  EXPECT_EQ(f.publish(kOne, "k", put).code, Code::kInvalidWrite);
}

TEST_F(Upsert, AnUpsertThatIsPublishedAfterAPutWins) {
  const Effect upsert = f.grant_upsert(kTwo, "k", kUnit);
  EXPECT_EQ(f.grant(kOne, "k", kUnit).code, Code::kObjectExists) << "it is being written";
  ASSERT_EQ(f.revoke(kTwo, "k", upsert.version).code, Code::kOk);
  const Effect put = f.grant(kOne, "k", kUnit);
  const Effect later = f.grant_upsert(kTwo, "k", kUnit);
  ASSERT_EQ(f.publish(kOne, "k", put).code, Code::kOk);
  ASSERT_EQ(f.publish(kTwo, "k", later).code, Code::kOk);
  EXPECT_EQ(f.locate("k").version, later.version);
}

TEST_F(Upsert, WritersEndInAnyOrder) {
  f.put(kOne, "k");
  std::vector<Effect> open;
  for (int i = 0; i < 5; ++i)
    open.push_back(f.grant_upsert(i % 2 == 0 ? kOne : kTwo, "k", kUnit));
  EXPECT_EQ(f.core.totals().open_grants, 5u);
  EXPECT_EQ(f.revoke(kOne, "k", open[2].version).code, Code::kOk);
  EXPECT_EQ(f.revoke(kOne, "k", open[1].version).code, Code::kIllegalClient);
  EXPECT_EQ(f.remove(kOne, "k"), Code::kOk) << "what is published can go while others write";
  EXPECT_EQ(f.exist("k"), Code::kObjectNotFound);
  EXPECT_EQ(f.remove(kOne, "k"), Code::kReplicaNotReady);
  EXPECT_EQ(f.revoke(kOne, "k", open[0].version).code, Code::kOk);
  EXPECT_EQ(f.publish(kTwo, "k", open[3]).code, Code::kOk);
  EXPECT_EQ(f.publish(kTwo, "k", open[1]).code, Code::kOk);
  EXPECT_EQ(f.unmount(kOne, {}), Code::kOk);  // with its segment, and the last writer
  EXPECT_EQ(f.core.totals().objects, 0u);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
}

TEST_F(Upsert, WritersOfOneKeyAreLimited) {
  for (std::size_t i = 0; i < kMaxWritesOfOneKey; ++i)
    ASSERT_EQ(f.grant_upsert(kOne, "k", 1).code, Code::kOk);
  const GrantTerms before = std::exchange(f.terms, f.upsert_terms());
  EXPECT_EQ(f.grant(kTwo, "k", 1, 9000).code, Code::kBusy);
  EXPECT_EQ(f.grant(kTwo, "other", 1).code, Code::kOk);
  f.now += std::chrono::seconds(30);
  EXPECT_EQ(f.grant(kTwo, "k", 1, 9000).code, Code::kOk) << "the others' time is over";
  f.terms = before;
  EXPECT_EQ(f.core.totals().expired_grants, kMaxWritesOfOneKey);
}

TEST_F(Upsert, TheSameNumberGetsTheSameAnswer) {
  f.put(kOne, "k");
  const GrantTerms before = std::exchange(f.terms, f.upsert_terms());
  const Effect granted = f.grant(kTwo, "k", kUnit, 800);
  EXPECT_EQ(f.grant(kTwo, "k", kUnit, 800).version, granted.version);
  f.terms = before;
  EXPECT_EQ(f.core.totals().open_grants, 1u);
  const auto arrived = f.incarnations(granted);
  EXPECT_EQ(f.publish(kTwo, "k", granted, arrived, 801).code, Code::kOk);
  f.upsert(kOne, "k");
  EXPECT_EQ(f.publish(kTwo, "k", granted, arrived, 801).code, Code::kOk);
  EXPECT_NE(f.locate("k").version, granted.version) << "a repeated publish publishes nothing";
}

// The room for the new version may be that of the old one.
TEST_F(Upsert, EvictsEvenWhatItReplaces) {
  f.put(kOne, "k", 60 * kUnit);
  f.now += kSecond;
  const Effect granted = f.grant_upsert(kOne, "k", 60 * kUnit);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(f.exist("k"), Code::kObjectNotFound);
  EXPECT_EQ(f.publish(kOne, "k", granted).code, Code::kOk);
  EXPECT_EQ(f.exist("k"), Code::kOk);
}

TEST_F(Upsert, WhatDidNotArriveLeavesTheOldVersion) {
  const Effect old = f.put(kOne, "k");
  const Effect granted = f.grant_upsert(kTwo, "k", kUnit);
  EXPECT_EQ(f.publish(kTwo, "k", granted, {base::SegmentIncarnation{}}).code,
            Code::kInvalidReplica);
  EXPECT_EQ(f.locate("k").version, old.version);
  f.now += std::chrono::seconds(31);
  f.heartbeat(kOne);
  f.heartbeat(kTwo);
  f.tick();
  EXPECT_EQ(f.locate("k").version, old.version);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
}

// Case C35 on the Master's side, and case C9: terms that contradict each other are refused.
TEST_F(Upsert, TermsAreChecked) {
  using std::chrono::milliseconds;
  f.terms.soft_pin_ttl = milliseconds(1000);
  EXPECT_EQ(f.grant(kOne, "k", 1).code, Code::kInvalidArgument);
  f.terms.soft_pin = SoftPin::kDisable;
  EXPECT_EQ(f.grant(kOne, "k", 1).code, Code::kInvalidArgument);
  f.terms.soft_pin = SoftPin::kEnable;
  EXPECT_EQ(f.grant(kOne, "k", 1).code, Code::kOk);
  f.terms.soft_pin_ttl = std::chrono::hours(24);
  EXPECT_EQ(f.grant(kOne, "l", 1).code, Code::kOk);
  f.terms.soft_pin_ttl = std::chrono::hours(24) + milliseconds(1);
  EXPECT_EQ(f.grant(kOne, "m", 1).code, Code::kInvalidArgument);
  EXPECT_EQ(f.core.totals().open_grants, 2u);
}

}  // namespace
}  // namespace mooncake::store::master
