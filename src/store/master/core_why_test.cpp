// Every way in which a key comes and goes is told apart afterwards, and told with where and by
// whom.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

using enum KeyEventKind;
using Kinds = std::vector<KeyEventKind>;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct CoreWhy : ::testing::Test {
  void SetUp() override { ASSERT_EQ(f.mount(Fixture::kOne, {Fixture::segment(1, 10)}), Code::kOk); }
  KeyReport why(std::string_view key, std::size_t most = 32) const {
    return f.core.why(key, most, f.now);
  }
  Kinds kinds(std::string_view key) const {
    Kinds all;
    for (const KeyEvent& event : why(key).events)
      all.push_back(event.kind);
    return all;
  }
  void mount_second() { ASSERT_EQ(f.mount(Fixture::kTwo, {Fixture::segment(2, 10)}), Code::kOk); }

  Fixture f;
};

TEST_F(CoreWhy, WhatWasNeverThere) {
  f.put(Fixture::kOne, "other");
  const KeyReport report = why("k");
  EXPECT_EQ(report.state, KeyState::kAbsent);
  EXPECT_TRUE(report.events.empty());
  EXPECT_EQ(report.remembered_events, 1u);
  EXPECT_FALSE(report.has_forgotten);
}

TEST_F(CoreWhy, WhatIsThere) {
  f.terms.hard_pin = true;
  const Effect put = f.put(Fixture::kOne, "k", 5000);
  f.now += seconds(2);
  EXPECT_EQ(f.locate("k").code, Code::kOk);
  f.now += seconds(1);
  const KeyReport report = why("k");
  EXPECT_EQ(report.state, KeyState::kPublished);
  EXPECT_EQ(report.version, put.version.value());
  EXPECT_EQ(report.size, 5000u);
  EXPECT_EQ(report.segments, std::vector<std::string>{"host1:1"});
  EXPECT_TRUE(report.hard_pinned);
  EXPECT_EQ(report.lease_left, seconds(9));
  ASSERT_EQ(report.events.size(), 1u);
  EXPECT_EQ(report.events[0].kind, kPublished);
  EXPECT_EQ(report.events[0].ago, seconds(3));
  EXPECT_EQ(report.events[0].segment, "host1:1");
  EXPECT_EQ(report.events[0].size, 5000u);
}

TEST_F(CoreWhy, TakesNoLease) {
  f.put(Fixture::kOne, "k");
  f.now += seconds(1);
  EXPECT_EQ(why("k").state, KeyState::kPublished);
  EXPECT_EQ(f.remove(Fixture::kOne, "k"), Code::kOk);
}

TEST_F(CoreWhy, WhatIsBeingWritten) {
  Command mount;
  mount.kind = CommandKind::kMount;
  mount.client = Fixture::kTwo;
  mount.sequence = ++f.control;
  mount.client_name = "writer:7";
  f.apply(mount);
  f.grant(Fixture::kTwo, "k", kUnit);
  f.now += milliseconds(1500);
  const KeyReport report = why("k");
  EXPECT_EQ(report.state, KeyState::kWriting);
  EXPECT_EQ(report.open_writes, 1u);
  EXPECT_EQ(report.writer, "writer:7");
  EXPECT_EQ(report.writing_for, milliseconds(1500));
  EXPECT_TRUE(report.events.empty());
}

TEST_F(CoreWhy, Evictions) {
  for (int i = 0; i < 11; ++i)
    f.put(Fixture::kOne, "k" + std::to_string(i));
  EXPECT_EQ(kinds("k0"), (Kinds{kEvictedForRoom, kPublished}));
  EXPECT_EQ(kinds("k1"), Kinds{kPublished});
}

TEST_F(CoreWhy, EvictionOfASoftPinnedObjectSaysSo) {
  f.terms.soft_pin = SoftPin::kEnable;
  f.put(Fixture::kOne, "k", 10 * kUnit);
  f.terms.soft_pin = SoftPin::kPreserve;
  f.put(Fixture::kOne, "other");
  const KeyReport report = why("k");
  ASSERT_EQ(report.events.size(), 2u);
  EXPECT_EQ(report.events[0].kind, kEvictedForRoom);
  EXPECT_TRUE(report.events[0].soft_pinned);
}

TEST(CoreWhyAhead, EvictionAheadOfNeed) {
  CoreOptions options = test_options();
  options.eviction_high_watermark = 0.5;
  options.eviction_ratio = 0.1;
  Fixture f(options);
  f.mount(Fixture::kOne, {Fixture::segment(1, 10)});
  for (int i = 0; i < 6; ++i)
    f.put(Fixture::kOne, "k" + std::to_string(i));
  f.tick();
  const KeyReport report = f.core.why("k0", 32, f.now);
  ASSERT_EQ(report.events.size(), 2u);
  EXPECT_EQ(report.events[0].kind, kEvictedAhead);
}

TEST_F(CoreWhy, Removals) {
  for (const char* key : {"a", "b", "c"})
    f.put(Fixture::kOne, key);
  EXPECT_EQ(f.remove(Fixture::kOne, "a"), Code::kOk);
  const std::function<bool(std::string_view)> is_b = [](std::string_view key) {
    return key == "b";
  };
  CommandItem item;
  Command sweep;
  sweep.kind = CommandKind::kSweep;
  sweep.items = {&item, 1};
  sweep.matches = &is_b;
  f.apply(sweep);
  sweep.matches = nullptr;
  f.apply(sweep);
  EXPECT_EQ(kinds("a"), (Kinds{kRemoved, kPublished}));
  EXPECT_EQ(kinds("b"), (Kinds{kRemovedByPattern, kPublished}));
  EXPECT_EQ(kinds("c"), (Kinds{kRemovedWithAll, kPublished}));
}

TEST_F(CoreWhy, Upserts) {
  const Effect first = f.put(Fixture::kOne, "k");
  const Effect second = f.upsert(Fixture::kOne, "k", 2 * kUnit);
  const KeyReport report = why("k");
  EXPECT_EQ(kinds("k"), (Kinds{kPublished, kReplaced, kPublished}));
  EXPECT_EQ(report.events[0].version, second.version.value());
  EXPECT_EQ(report.events[1].version, first.version.value());
  f.grant_upsert(Fixture::kOne, "k", kUnit);
  EXPECT_EQ(why("k").state, KeyState::kPublished);
  EXPECT_EQ(why("k").open_writes, 1u);
}

TEST_F(CoreWhy, WritesThatEnd) {
  mount_second();
  const Effect revoked = f.grant(Fixture::kOne, "revoked", kUnit);
  f.revoke(Fixture::kOne, "revoked", revoked.version);
  f.grant(Fixture::kTwo, "left", kUnit);
  f.unmount(Fixture::kTwo);
  f.grant(Fixture::kOne, "slow", kUnit);
  f.pass(seconds(31), {Fixture::kOne});
  f.grant(Fixture::kOne, "abandoned", kUnit);
  f.oldest_open = f.numbers + 1;
  f.put(Fixture::kOne, "next");
  EXPECT_EQ(kinds("revoked"), Kinds{kWriteRevoked});
  EXPECT_EQ(kinds("left"), Kinds{kWriterLeft});
  EXPECT_EQ(kinds("slow"), Kinds{kWriteTimedOut});
  EXPECT_EQ(kinds("abandoned"), Kinds{kWriteAbandoned});
}

TEST_F(CoreWhy, AWriteThatAnotherOvertakes) {
  const Effect put = f.grant(Fixture::kOne, "k", kUnit);
  f.upsert(Fixture::kOne, "k");
  EXPECT_EQ(f.publish(Fixture::kOne, "k", put).code, Code::kObjectExists);
  EXPECT_EQ(kinds("k"), (Kinds{kWriteOvertaken, kPublished}));
}

// Puts "k" into the segment of the second client, which then goes by `lose`.
template <typename Lose>
void expect_lost(KeyEventKind expected, Lose lose) {
  Fixture f;
  f.mount(Fixture::kOne);
  f.mount(Fixture::kTwo, {Fixture::segment(2, 10)});
  f.put(Fixture::kOne, "k");
  lose(f);
  const KeyReport report = f.core.why("k", 32, f.now);
  EXPECT_EQ(report.state, KeyState::kAbsent);
  ASSERT_EQ(report.events.size(), 2u);
  EXPECT_EQ(report.events[0].kind, expected);
  EXPECT_EQ(report.events[0].segment, "host2:1") << "it is known after the segment has gone";
}

TEST(CoreWhyLost, TellsHow) {
  expect_lost(kOwnerLeft, [](Fixture& f) { f.unmount(Fixture::kTwo); });
  expect_lost(kSegmentUnmounted,
              [](Fixture& f) { f.unmount(Fixture::kTwo, {Fixture::segment(2, 10)}); });
  expect_lost(kSegmentUnmounted, [](Fixture& f) {
    f.grace = seconds(1);
    f.unmount(Fixture::kTwo, {Fixture::segment(2, 10)});
    f.pass(seconds(2));
  });
  expect_lost(kSegmentMountedAnew,
              [](Fixture& f) { f.mount(Fixture::kTwo, {Fixture::segment(2, 10, 2)}); });
  expect_lost(kOwnerSilent, [](Fixture& f) { f.pass(seconds(11), {Fixture::kOne}); });
  expect_lost(kOwnerReplaced, [](Fixture& f) {
    f.segments_command(CommandKind::kDisown, ClientId{}, {Fixture::segment(2, 10)});
  });
  expect_lost(kOwnerDistrusted, [](Fixture& f) {
    f.newest_version = Version(Epoch{900}, 1);
    EXPECT_EQ(f.heartbeat(Fixture::kTwo), Code::kClientNotFound);
  });
}

TEST_F(CoreWhy, ALostReplicaAmongSeveralIsNoEnd) {
  mount_second();
  f.replicas = 2;
  f.put(Fixture::kOne, "k");
  f.unmount(Fixture::kTwo);
  EXPECT_EQ(why("k").state, KeyState::kPublished);
  EXPECT_EQ(kinds("k"), Kinds{kPublished});
}

TEST(CoreWhyForgets, OldEventsHonestly) {
  CoreOptions options = test_options();
  options.remembered_events = 8;
  Fixture f(options);
  f.mount(Fixture::kOne, {Fixture::segment(1, 100)});
  f.put(Fixture::kOne, "old");
  f.remove(Fixture::kOne, "old");
  for (int i = 0; i < 8; ++i) {
    f.now += seconds(1);
    f.put(Fixture::kOne, "k" + std::to_string(i));
  }
  const KeyReport report = f.core.why("old", 32, f.now);
  EXPECT_TRUE(report.events.empty());
  EXPECT_TRUE(report.has_forgotten);
  EXPECT_EQ(report.remembered_events, 8u);
  EXPECT_EQ(report.remembered_for, seconds(7));
}

TEST_F(CoreWhy, GivesAtMostWhatIsAskedFor) {
  for (int i = 0; i < 5; ++i)
    f.upsert(Fixture::kOne, "k");
  const KeyReport report = why("k", 3);
  EXPECT_EQ(report.events.size(), 3u);
  EXPECT_TRUE(report.more_events);
  EXPECT_FALSE(why("k", 9).more_events);
}

TEST_F(CoreWhy, DecisionsNameTheEvent) {
  f.put(Fixture::kOne, "k");
  f.remove(Fixture::kOne, "k");
  ASSERT_EQ(f.decisions.size(), 2u);
  EXPECT_EQ(f.decisions[1].kind, Decision::Kind::kRemoved);
  EXPECT_EQ(f.decisions[1].event, kRemoved);
}

}  // namespace
}  // namespace mooncake::store::master
