// Grant, publish, revoke: one writer at a time, each answer once, room by eviction.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr ClientId kOne = Fixture::kOne;
constexpr ClientId kTwo = Fixture::kTwo;

struct Put : testing::Test {
  void SetUp() override {
    ASSERT_EQ(f.mount(kOne, {Fixture::segment(1, 100)}), Code::kOk);
    ASSERT_EQ(f.mount(kTwo), Code::kOk);
  }
  Fixture f;
};

TEST_F(Put, BecomesVisibleWithPublish) {
  const Effect granted = f.grant(kTwo, "k", kUnit + 1);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(granted.replicas, 1);
  EXPECT_EQ(granted.version.epoch(), Epoch{100});
  EXPECT_EQ(f.exist("k"), Code::kObjectNotFound);
  EXPECT_EQ(f.locate("k").code, Code::kObjectNotFound);
  EXPECT_EQ(f.core.totals().open_grants, 1u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 2 * kUnit);
  ASSERT_EQ(f.publish(kTwo, "k", granted).code, Code::kOk);
  EXPECT_EQ(f.exist("k"), Code::kOk);
  const Effect found = f.locate("k");
  EXPECT_EQ(found.version, granted.version);
  EXPECT_EQ(found.size, kUnit + 1);
  EXPECT_EQ(found.placements[0], granted.placements[0]);
  EXPECT_EQ(f.core.totals().objects, 1u);
  ASSERT_EQ(f.decisions.size(), 1u);
  EXPECT_EQ(f.decisions[0].kind, Decision::Kind::kPublished);
  EXPECT_EQ(f.decisions[0].key, "k");
  EXPECT_EQ(f.decisions[0].version, granted.version);
}

TEST_F(Put, RefusesWhatIsWrong) {
  EXPECT_EQ(f.grant(kOne, "", 1).code, Code::kInvalidArgument);
  EXPECT_EQ(f.grant(kOne, "k", 0).code, Code::kInvalidArgument);
  EXPECT_EQ(f.grant(kOne, std::string(kMaxKeyLength + 1, 'k'), 1).code, Code::kInvalidArgument);
  EXPECT_EQ(f.grant(kOne, std::string(kMaxKeyLength, 'k'), 1).code, Code::kOk);
  f.replicas = 0;
  EXPECT_EQ(f.grant(kOne, "k", 1).code, Code::kInvalidArgument);
  EXPECT_EQ(f.grant(ClientId{9}, "k", 1).code, Code::kClientNotFound);
  EXPECT_EQ(f.effects.code, Code::kClientNotFound);
}

TEST_F(Put, SizesAndReplicasAtTheirEndsDoNoHarm) {
  ASSERT_EQ(f.put(kOne, "there").code, Code::kOk);
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  for (const std::uint64_t size : {101 * kUnit, kMaxSegment, kMaxSegment + 1,
                                   std::uint64_t{1} << 63, kMost - kUnit, kMost - 1, kMost}) {
    EXPECT_EQ(f.grant(kOne, "k", size).code, Code::kNoSpace) << size;
    ASSERT_TRUE(f.effects.shortage);
    EXPECT_GE(f.effects.shortage->needed, std::min(size, kMaxSegment));
    f.effects.shortage.reset();
  }
  EXPECT_EQ(f.exist("there"), Code::kOk) << "nothing is evicted in vain";
  f.replicas = ~std::uint32_t{0};
  EXPECT_EQ(f.grant(kOne, "k", 1).replicas, 1) << "there is one segment";
  // The last numbers there are.
  EXPECT_EQ(f.grant(kOne, "k", 1, kMost).code, Code::kInvalidArgument);
  f.oldest_open = kMost - 1;
  EXPECT_EQ(f.grant(kOne, "last", 1, kMost - 1).code, Code::kOk);
  f.oldest_open = kMost;
  EXPECT_EQ(f.grant(kOne, "last", 1, kMost - 1).code, Code::kStaleCommand);
}

TEST_F(Put, OneWriterAtATime) {
  const Effect first = f.grant(kOne, "k", 1);
  EXPECT_EQ(f.grant(kTwo, "k", 1).code, Code::kObjectExists);
  EXPECT_EQ(f.grant(kOne, "k", 1).code, Code::kObjectExists);
  EXPECT_EQ(f.publish(kTwo, "k", first).code, Code::kIllegalClient);
  EXPECT_EQ(f.revoke(kTwo, "k", first.version).code, Code::kIllegalClient);
  Effect other = first;
  other.version = Version(Epoch{100}, 77);
  EXPECT_EQ(f.publish(kOne, "k", other).code, Code::kInvalidWrite);
  EXPECT_EQ(f.publish(kOne, "unknown", first).code, Code::kObjectNotFound);
  EXPECT_EQ(f.revoke(kOne, "unknown", first.version).code, Code::kObjectNotFound);
  EXPECT_EQ(f.publish(kOne, "k", first).code, Code::kOk);
  EXPECT_EQ(f.grant(kTwo, "k", 1).code, Code::kObjectExists);
}

TEST_F(Put, AKeyTwiceInOneBatch) {
  const CommandItem items[] = {
      {.key = "k", .size = 1}, {.key = "l", .size = 1}, {.key = "k", .size = 1}};
  Command command;
  command.kind = CommandKind::kGrant;
  command.client = kOne;
  command.sequence = 10;
  command.items = items;
  const std::vector<Effect> granted = f.apply(command);
  EXPECT_EQ(granted[0].code, Code::kOk);
  EXPECT_EQ(granted[1].code, Code::kOk);
  EXPECT_EQ(granted[2].code, Code::kObjectExists);
}

TEST_F(Put, TheSameNumberGetsTheSameAnswer) {
  const Effect granted = f.grant(kOne, "k", 5000, 50);
  const Effect again = f.grant(kOne, "k", 5000, 50);
  EXPECT_EQ(again.code, Code::kOk);
  EXPECT_EQ(again.version, granted.version);
  EXPECT_EQ(again.size, granted.size);
  EXPECT_EQ(again.placements[0], granted.placements[0]);
  EXPECT_EQ(f.core.totals().open_grants, 1u);
  const auto arrived = f.incarnations(granted);
  EXPECT_EQ(f.publish(kOne, "k", granted, arrived, 51).code, Code::kOk);
  EXPECT_EQ(f.publish(kOne, "k", granted, arrived, 51).code, Code::kOk);
  EXPECT_EQ(f.publish(kOne, "k", granted, arrived, 52).code, Code::kOk);  // a retry by its words
  EXPECT_EQ(f.core.totals().objects, 1u);
  EXPECT_EQ(f.remove(kOne, "k", 53), Code::kOk);
  EXPECT_EQ(f.remove(kOne, "k", 53), Code::kOk);
  f.put(kTwo, "k");
  // A remove that comes once more is not a second remove, nor is the grant a second grant.
  EXPECT_EQ(f.remove(kOne, "k", 53), Code::kOk);
  EXPECT_EQ(f.grant(kOne, "k", 5000, 50).version, granted.version);
  EXPECT_EQ(f.exist("k"), Code::kOk);
  EXPECT_EQ(f.count(Decision::Kind::kRemoved), 1);
  // A number belongs to one command and key.
  EXPECT_EQ(f.remove(kOne, "k", 50), Code::kInvalidArgument);
  EXPECT_EQ(f.grant(kOne, "other", 5000, 50).code, Code::kInvalidArgument);
}

TEST_F(Put, NumbersOfThePastAreRefused) {
  f.oldest_open = 100;
  EXPECT_EQ(f.grant(kOne, "k", 1, 99).code, Code::kStaleCommand);
  EXPECT_EQ(f.grant(kOne, "k", 1, 100).code, Code::kOk);
  EXPECT_EQ(f.grant(kOne, "far", 1, 100 + 65536).code, Code::kBusy);
  f.oldest_open = 5;  // a late message
  EXPECT_EQ(f.grant(kOne, "k", 1, 99).code, Code::kStaleCommand);
  EXPECT_EQ(f.grant(kOne, "k", 1, ~std::uint64_t{0}).code, Code::kInvalidArgument);
}

TEST_F(Put, AnOpenGrantThatIsNoLongerNamedIsAbandoned) {
  f.numbers = 100;
  f.grant(kOne, "left", 1, 10);
  const Effect kept = f.grant(kOne, "kept", 1, 11);
  f.oldest_open = 11;
  f.grant(kOne, "other", 1, 20);
  EXPECT_EQ(f.core.totals().open_grants, 2u);
  EXPECT_EQ(f.count(Decision::Kind::kGrantExpired), 1);
  EXPECT_EQ(f.grant(kTwo, "left", 1).code, Code::kOk);
  EXPECT_EQ(f.publish(kOne, "kept", kept).code, Code::kOk);
  f.oldest_open = 200;
  f.grant(kOne, "next", 1, 200);
  EXPECT_EQ(f.exist("kept"), Code::kOk);
}

TEST_F(Put, RevokeGivesTheRoomBack) {
  const Effect granted = f.grant(kOne, "k", 100 * kUnit);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(f.revoke(kOne, "k", granted.version).code, Code::kOk);
  EXPECT_EQ(f.core.totals().allocated_bytes, 0u);
  EXPECT_EQ(f.publish(kOne, "k", granted).code, Code::kObjectNotFound);
  const Effect again = f.put(kTwo, "k", 100 * kUnit);
  EXPECT_GT(again.version, granted.version);
  EXPECT_EQ(f.revoke(kTwo, "k", again.version).code, Code::kInvalidWrite);
}

TEST_F(Put, AnExpiredGrantIsTakenOver) {
  const Effect first = f.grant(kOne, "k", 1);
  f.now += std::chrono::seconds(29);
  EXPECT_EQ(f.grant(kTwo, "k", 1).code, Code::kObjectExists);
  f.now += kSecond;
  const Effect second = f.grant(kTwo, "k", 1);
  ASSERT_EQ(second.code, Code::kOk);
  EXPECT_GT(second.version, first.version);
  EXPECT_EQ(f.core.totals().expired_grants, 1u);
  EXPECT_EQ(f.publish(kOne, "k", first).code, Code::kInvalidWrite);
  EXPECT_EQ(f.publish(kTwo, "k", second).code, Code::kOk);
  EXPECT_EQ(f.publish(kOne, "k", first).code, Code::kInvalidWrite);
}

TEST_F(Put, ALatePublishIsWelcomeWhileNobodyTookOver) {
  const Effect granted = f.grant(kOne, "k", 1);
  f.now += std::chrono::seconds(40);
  EXPECT_EQ(f.publish(kOne, "k", granted).code, Code::kOk);
  EXPECT_EQ(f.exist("k"), Code::kOk);
}

TEST_F(Put, TooLargeIsNoSpaceAtOnce) {
  f.put(kOne, "k");
  for (const std::uint64_t size : {101 * kUnit, kMaxSegment, ~std::uint64_t{0}}) {
    EXPECT_EQ(f.grant(kOne, "large", size).code, Code::kNoSpace);
    ASSERT_TRUE(f.effects.shortage);
    EXPECT_GE(f.effects.shortage->needed, 101 * kUnit);
    EXPECT_EQ(f.effects.shortage->evictable, kUnit);
  }
  EXPECT_EQ(f.exist("k"), Code::kOk);
  EXPECT_EQ(f.core.totals().grant_shortages, 3u);
}

TEST_F(Put, EvictsTheLeastRecentlyUsed) {
  for (int i = 0; i < 100; ++i)
    f.put(kOne, "k" + std::to_string(i));
  f.now += kSecond;
  EXPECT_EQ(f.locate("k0").code, Code::kOk);
  EXPECT_EQ(f.put(kTwo, "new", 3 * kUnit).code, Code::kOk);
  EXPECT_EQ(f.core.totals().evicted_objects, 3u);
  EXPECT_EQ(f.core.totals().evicted_bytes, 3 * kUnit);
  EXPECT_EQ(f.exist("k0"), Code::kOk);
  for (const char* gone : {"k1", "k2", "k3"})
    EXPECT_EQ(f.exist(gone), Code::kObjectNotFound);
  EXPECT_EQ(f.exist("k4"), Code::kOk);
}

TEST_F(Put, NeverNoSpaceWhileEnoughIsEvictable) {
  // Leases hold every second object; an object of two units fits only where two evictable ones
  // meet.
  for (int i = 0; i < 100; ++i)
    f.put(kOne, "k" + std::to_string(i));
  f.now += kSecond;
  for (int i = 0; i < 100; i += 2)
    f.locate("k" + std::to_string(i));
  EXPECT_EQ(f.grant(kOne, "pair", 2 * kUnit).code, Code::kNoSpace);
  ASSERT_TRUE(f.effects.shortage);
  EXPECT_EQ(f.effects.shortage->needed, 2 * kUnit);
  EXPECT_EQ(f.effects.shortage->evictable, 0u);  // all were tried
  EXPECT_EQ(f.effects.shortage->held, 50 * kUnit);
  f.now += std::chrono::seconds(11);
  EXPECT_EQ(f.grant(kOne, "pair", 2 * kUnit).code, Code::kOk);
  EXPECT_EQ(f.grant(kOne, "rest", 98 * kUnit).code, Code::kOk);
}

TEST_F(Put, WhatIsHeldIsNotEvictedInVain) {
  for (int i = 0; i < 100; ++i)
    f.put(kOne, "k" + std::to_string(i));
  f.now += kSecond;
  for (int i = 0; i < 60; ++i)
    f.locate("k" + std::to_string(i));
  EXPECT_EQ(f.grant(kOne, "large", 41 * kUnit).code, Code::kNoSpace);
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
  EXPECT_EQ(f.effects.shortage->evictable, 40 * kUnit);
  EXPECT_EQ(f.effects.shortage->held, 60 * kUnit);
}

TEST_F(Put, WaitsForMemoryThatIsBeingPreparedRatherThanEvict) {
  MountedSegment slow = Fixture::segment(2, 100);
  slow.prepared = 10 * kUnit;
  ASSERT_EQ(f.mount(kTwo, {slow}), Code::kOk);
  for (int i = 0; i < 110; ++i)
    ASSERT_EQ(f.put(kOne, "k" + std::to_string(i)).code, Code::kOk);
  EXPECT_EQ(f.grant(kOne, "more", kUnit, 5000).code, Code::kSpaceInPreparation);
  ASSERT_TRUE(f.effects.shortage);
  EXPECT_EQ(f.effects.shortage->unprepared, 90 * kUnit);
  slow.prepared = 20 * kUnit;
  f.now += kSecond;
  f.heartbeat(kTwo, {slow});
  EXPECT_EQ(f.grant(kOne, "more", kUnit, 5000).code, Code::kOk);  // the same number
  for (int i = 0; i < 9; ++i)
    f.put(kOne, "l" + std::to_string(i));
  EXPECT_EQ(f.grant(kOne, "stall", kUnit).code, Code::kSpaceInPreparation);
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
  // An owner that makes no progress is not waited for.
  f.now += std::chrono::seconds(3);
  EXPECT_EQ(f.grant(kOne, "now", kUnit).code, Code::kOk);
  EXPECT_EQ(f.core.totals().evicted_objects, 1u);
}

TEST_F(Put, ReplicasLieInDistinctSegments) {
  ASSERT_EQ(f.mount(kTwo, {Fixture::segment(2, 100), Fixture::segment(3, 100)}), Code::kOk);
  f.replicas = 3;
  const Effect granted = f.grant(kOne, "k", kUnit);
  ASSERT_EQ(granted.replicas, 3);
  std::set<std::uint32_t> segments;
  for (int i = 0; i < 3; ++i)
    segments.insert(granted.placements[i].segment);
  EXPECT_EQ(segments.size(), 3u);
  // The second one did not arrive.
  auto arrived = f.incarnations(granted);
  arrived[1] = {};
  EXPECT_EQ(f.publish(kOne, "k", granted, arrived).code, Code::kOk);
  const Effect found = f.locate("k");
  ASSERT_EQ(found.replicas, 2);
  EXPECT_EQ(found.placements[0], granted.placements[0]);
  EXPECT_EQ(found.placements[1], granted.placements[2]);
  EXPECT_EQ(f.core.totals().resting_extents, 1u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 3 * kUnit);
  f.replicas = 9;
  EXPECT_EQ(f.grant(kOne, "l", kUnit).replicas, 3);
  EXPECT_EQ(f.core.totals().partial_grants, 1u);
}

TEST_F(Put, ObjectsGoWhereTheyAreWanted) {
  ASSERT_EQ(f.mount(kTwo, {Fixture::segment(2, 100), Fixture::segment(3, 100)}), Code::kOk);
  const std::string_view names[] = {"host3:1", "host1:1"};
  f.terms.preferred = names;
  const auto name_of = [&](const Effect& granted, std::size_t replica) {
    return f.core.segment(granted.placements[replica].segment)->name;
  };
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(name_of(f.put(kOne, "p" + std::to_string(i)), 0), "host3:1");
  f.replicas = 3;
  const Effect all = f.put(kOne, "all");
  ASSERT_EQ(all.replicas, 3);
  EXPECT_EQ(name_of(all, 0), "host3:1");
  EXPECT_EQ(name_of(all, 1), "host1:1");
  f.replicas = 1;
  f.terms = {};
  f.terms.prefer_same_node = true;
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(name_of(f.put(kOne, "n" + std::to_string(i)), 0), "host1:1");
  // A writer without memory of its own is known by its name.
  Command mount;
  mount.kind = CommandKind::kMount;
  mount.client = ClientId{3};
  mount.client_name = "host2:77";
  f.apply(mount);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(name_of(f.put(ClientId{3}, "m" + std::to_string(i)), 0), "host2:1");
  // A full segment is no reason to evict while another one has room.
  EXPECT_EQ(f.put(kOne, "large", 80 * kUnit).code, Code::kOk);
  EXPECT_NE(name_of(f.put(kOne, "larger", 80 * kUnit), 0), "host1:1");
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
}

TEST_F(Put, FewerReplicasThanAskedRatherThanNone) {
  ASSERT_EQ(f.mount(kTwo, {Fixture::segment(2, 10)}), Code::kOk);
  const Effect blocker = f.put(kOne, "blocker", 95 * kUnit);
  ASSERT_EQ(blocker.code, Code::kOk);
  f.locate("blocker");
  f.replicas = 2;
  const Effect granted = f.grant(kOne, "k", 8 * kUnit);
  EXPECT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(granted.replicas, 1);
  EXPECT_EQ(f.core.totals().partial_grants, 1u);
  EXPECT_EQ(f.grant(kOne, "l", 4 * kUnit).replicas, 1);
}

// What lies only where the object already has a replica cannot make room for another one.
TEST_F(Put, NothingIsEvictedThatCannotMakeRoomForAnotherReplica) {
  ASSERT_EQ(f.mount(kTwo, {Fixture::segment(2, 10)}), Code::kOk);
  const std::string_view large = "host1:1", small = "host2:1";
  f.terms.preferred = {&small, 1};
  f.terms.hard_pin = true;
  ASSERT_EQ(f.put(kTwo, "pinned", 10 * kUnit).code, Code::kOk);
  f.terms = {};
  f.terms.preferred = {&large, 1};
  for (int i = 0; i < 90; ++i)
    ASSERT_EQ(f.put(kOne, "k" + std::to_string(i)).code, Code::kOk);
  f.replicas = 2;
  EXPECT_EQ(f.put(kOne, "two").replicas, 1);
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
  // Nor for what the other segment could never hold.
  f.remove(kTwo, "pinned");
  f.replicas = 1;
  f.terms.preferred = {&small, 1};
  ASSERT_EQ(f.put(kTwo, "old").code, Code::kOk);
  f.remove(kOne, "two");
  for (int i = 0; i < 85; ++i)
    f.remove(kOne, "k" + std::to_string(i));
  f.replicas = 2;
  EXPECT_EQ(f.put(kOne, "larger", 11 * kUnit).replicas, 1);
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
}

TEST_F(Put, WhatCanMakeRoomForAnotherReplicaIsEvicted) {
  ASSERT_EQ(f.mount(kTwo, {Fixture::segment(2, 10)}), Code::kOk);
  const std::string_view small = "host2:1", large = "host1:1";
  f.terms.preferred = {&small, 1};
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(f.put(kTwo, "old" + std::to_string(i)).code, Code::kOk);
  f.terms.preferred = {&large, 1};
  f.replicas = 2;
  EXPECT_EQ(f.put(kOne, "two", 3 * kUnit).replicas, 2);
  EXPECT_EQ(f.core.totals().evicted_objects, 3u);
  EXPECT_EQ(f.exist("old2"), Code::kObjectNotFound);
  EXPECT_EQ(f.exist("old3"), Code::kOk);
}

TEST_F(Put, NothingIsEvictedForAnotherReplicaWhileItsRoomIsBeingPrepared) {
  MountedSegment slow = Fixture::segment(2, 100);
  slow.prepared = 10 * kUnit;
  ASSERT_EQ(f.mount(kTwo, {slow}), Code::kOk);
  const std::string_view two = "host2:1", one = "host1:1";
  f.terms.preferred = {&two, 1};
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(f.put(kTwo, "old" + std::to_string(i)).code, Code::kOk);
  f.terms.preferred = {&one, 1};
  f.replicas = 2;
  EXPECT_EQ(f.put(kOne, "k").replicas, 1);
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
  f.now += std::chrono::seconds(4);  // nothing more comes
  EXPECT_EQ(f.put(kOne, "l").replicas, 2);
  EXPECT_EQ(f.core.totals().evicted_objects, 1u);
}

TEST_F(Put, APublishNamesItsReplicas) {
  f.replicas = 1;
  const Effect granted = f.grant(kOne, "k", kUnit);
  EXPECT_EQ(f.publish(kOne, "k", granted, {}).code, Code::kInvalidArgument);
  EXPECT_EQ(f.publish(kOne, "k", granted, {base::SegmentIncarnation{}}).code,
            Code::kInvalidReplica);
  EXPECT_EQ(f.publish(kOne, "k", granted, {base::SegmentIncarnation{5}}).code,
            Code::kInvalidReplica);
  EXPECT_EQ(f.publish(kOne, "k", granted).code, Code::kOk);
}

TEST_F(Put, VersionsRiseThroughTheEpochs) {
  CoreOptions options = test_options();
  options.epoch_limit = Epoch{101};
  Fixture g(options);
  EXPECT_TRUE(g.core.wants_epochs());
  EXPECT_EQ(g.core.wanted_limit(), Epoch{100 + 512});
  g.mount(kOne, {Fixture::segment(1, 100)});
  Version last;
  for (int i = 0; i < 50; ++i) {
    const Effect granted = g.put(kOne, "k" + std::to_string(i));
    EXPECT_GT(granted.version, last);
    last = granted.version;
  }
  g.core.extend_epochs(Epoch{2000});
  EXPECT_FALSE(g.core.wants_epochs());
}

}  // namespace
}  // namespace mooncake::store::master
