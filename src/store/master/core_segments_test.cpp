// Mount, unmount, heartbeat: what is lost with a segment, and which messages come too late.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr ClientId kOne = Fixture::kOne;
constexpr ClientId kTwo = Fixture::kTwo;

TEST(Segments, AreChecked) {
  Fixture f;
  const auto refused = [&](auto change) {
    MountedSegment segment = Fixture::segment(1, 10);
    change(segment);
    return f.mount(kOne, {segment}) == Code::kInvalidArgument && f.core.totals().segments == 0;
  };
  EXPECT_TRUE(refused([](auto& s) { s.address.size = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.size = kUnit + 1; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.size = kMaxSegment + kUnit; }));
  for (const std::uint64_t size : {std::uint64_t{1} << 63, ~std::uint64_t{0} - kUnit + 1})
    EXPECT_TRUE(refused([&](auto& s) { s.address.size = s.prepared = size; })) << size;
  EXPECT_TRUE(refused([](auto& s) { s.prepared = s.address.size + 1; }));
  EXPECT_TRUE(refused([](auto& s) { s.prepared = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.name.clear(); }));
  EXPECT_TRUE(refused([](auto& s) { s.address.name.assign(2000, 'n'); }));
  EXPECT_TRUE(refused([](auto& s) { s.address.host.assign(2000, 'n'); }));
  EXPECT_TRUE(refused([](auto& s) { s.address.name = "a\nb"; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.host = "\xFF"; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.id = {}; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.incarnation = {}; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.owner = {}; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.base = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](auto& s) { s.address.base = ~std::uint64_t{0} - s.address.size + 1; }));
  EXPECT_EQ(f.mount(ClientId{}), Code::kInvalidArgument);
  EXPECT_EQ(f.core.totals().clients, 1u);
}

// The largest there may be, three times: sums, room and what is promised stay right.
TEST(Segments, OfTheLargestSizeAreServed) {
  Fixture f;
  std::vector<MountedSegment> segments;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    segments.push_back(Fixture::segment(i, kMaxSegment / kUnit));
    segments.back().prepared = 0;
  }
  ASSERT_EQ(f.mount(kOne, segments), Code::kOk);
  for (MountedSegment& segment : segments)
    segment.prepared = ~std::uint64_t{0};
  EXPECT_EQ(f.heartbeat(kOne, segments), Code::kOk);
  // Of each the last unit is never used.
  EXPECT_EQ(f.core.totals().capacity_bytes, 3 * (kMaxSegment - kUnit));
  EXPECT_EQ(f.core.totals().prepared_bytes, 3 * (kMaxSegment - kUnit));
  EXPECT_EQ(f.grant(kOne, "larger", kMaxSegment).code, Code::kNoSpace);
  EXPECT_EQ(f.core.totals().grant_shortages, 1u);
  f.replicas = 4;
  const Effect granted = f.put(kOne, "large", kMaxSegment - kUnit);
  EXPECT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(granted.replicas, 3);
  EXPECT_EQ(f.core.totals().allocated_bytes, 3 * (kMaxSegment - kUnit));
  f.replicas = 1;
  EXPECT_EQ(f.put(kOne, "k").code, Code::kOk) << "the large one was evicted";
  EXPECT_EQ(f.core.totals().evicted_bytes, 3 * (kMaxSegment - kUnit));
}

TEST(Segments, MountTwiceIsMountOnce) {
  Fixture f;
  MountedSegment segment = Fixture::segment(1, 10);
  segment.prepared = 0;
  EXPECT_EQ(f.mount(kOne, {segment}), Code::kOk);
  segment.prepared = 5 * kUnit;
  EXPECT_EQ(f.mount(kOne, {segment}), Code::kOk);
  EXPECT_EQ(f.core.totals().segments, 1u);
  EXPECT_EQ(f.core.totals().capacity_bytes, 10 * kUnit);
  EXPECT_EQ(f.core.totals().prepared_bytes, 5 * kUnit);
  MountedSegment other = segment;
  other.address.size += kUnit;
  EXPECT_EQ(f.mount(kOne, {other}), Code::kInvalidArgument);
  EXPECT_EQ(f.mount(kOne, {segment, segment}), Code::kOk);
  ASSERT_EQ(f.core.segments().size(), 1u);
  EXPECT_EQ(f.core.segments()[0].prepared, 5 * kUnit);
}

TEST(Segments, BelongToOneClient) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  EXPECT_EQ(f.mount(kTwo, {Fixture::segment(1, 10)}), Code::kSegmentExists);
  MountedSegment namesake = Fixture::segment(2, 10);
  namesake.address.name = Fixture::segment(1, 10).address.name;
  EXPECT_EQ(f.mount(kTwo, {namesake}), Code::kSegmentExists);
  namesake.address.owner = Fixture::segment(1, 10).address.owner;  // two clients of one engine
  EXPECT_EQ(f.mount(kTwo, {namesake}), Code::kOk);
  EXPECT_EQ(f.unmount(kTwo, {Fixture::segment(1, 10)}), Code::kSegmentNotFound);
  EXPECT_EQ(f.heartbeat(kTwo, {Fixture::segment(1, 10)}), Code::kSegmentNotFound);
  EXPECT_EQ(f.core.totals().segments, 2u);
}

TEST(Segments, ANewIncarnationLosesWhatWasThere) {
  Fixture f;
  f.mount_two_with_both();
  for (int i = 0; i < 6; ++i)
    f.put(kOne, "k" + std::to_string(i));
  f.locate("k0");
  f.replicas = 2;
  const Effect open = f.grant(kTwo, "open", kUnit);
  ASSERT_EQ(open.replicas, 2);
  const auto before = f.incarnations(open);
  ASSERT_EQ(f.mount(kOne, {Fixture::segment(1, 10, 2)}), Code::kOk);

  EXPECT_EQ(f.core.totals().lost_objects, static_cast<unsigned>(f.count(Decision::Kind::kLost)));
  EXPECT_EQ(f.core.totals().objects + f.core.totals().lost_objects, 7u);
  EXPECT_GT(f.core.totals().lost_objects, 0u);
  const Effect both = f.locate("both");
  ASSERT_EQ(both.code, Code::kOk);
  ASSERT_EQ(both.replicas, 1);
  EXPECT_EQ(f.core.segment(both.placements[0].segment)->id, Fixture::segment(2, 1).address.id);
  // The open write lost one replica, and is refused as long as it insists on it.
  EXPECT_EQ(f.publish(kTwo, "open", open, before).code, Code::kInvalidReplica);
  EXPECT_EQ(f.publish(kTwo, "open", open, f.incarnations(open)).code, Code::kInvalidReplica);
  auto arrived = before;
  for (std::size_t i = 0; i < 2; ++i) {
    if (f.core.segment(open.placements[i].segment) == nullptr) arrived[i] = {};
  }
  EXPECT_EQ(f.publish(kTwo, "open", open, arrived).code, Code::kOk);
  EXPECT_EQ(f.locate("open").replicas, 1);
}

TEST(Segments, AMountNamesAllThatAClientGives) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10), Fixture::segment(2, 10)});
  f.mount(kTwo, {});
  for (int i = 0; i < 10; ++i)
    f.put(kTwo, "k" + std::to_string(i));
  f.mount(kOne, {Fixture::segment(2, 10)});
  EXPECT_EQ(f.core.totals().segments, 1u);
  EXPECT_EQ(f.core.totals().capacity_bytes, 10 * kUnit);
  EXPECT_EQ(f.core.totals().objects + f.core.totals().lost_objects, 10u);
}

TEST(Segments, UnmountIsIdempotent) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10), Fixture::segment(2, 10)});
  EXPECT_EQ(f.unmount(kOne, {Fixture::segment(1, 10, 9)}), Code::kOk);  // another incarnation
  EXPECT_EQ(f.core.totals().segments, 2u);
  EXPECT_EQ(f.unmount(kOne, {Fixture::segment(1, 10)}), Code::kOk);
  EXPECT_EQ(f.unmount(kOne, {Fixture::segment(1, 10)}), Code::kOk);
  EXPECT_EQ(f.core.totals().segments, 1u);
  f.grant(kOne, "open", 1);
  EXPECT_EQ(f.unmount(kOne), Code::kOk);
  EXPECT_EQ(f.unmount(kOne), Code::kOk);
  EXPECT_EQ(f.unmount(ClientId{9}), Code::kOk);
  EXPECT_EQ(f.core.totals().segments, 0u);
  EXPECT_EQ(f.core.totals().clients, 0u);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
  EXPECT_EQ(f.heartbeat(kOne), Code::kClientNotFound);
}

// A version that was never granted shuts out the grants to come: the memory has to be given anew.
TEST(Segments, AVersionThatWasNeverGrantedMeansMountingAgain) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  const Effect granted = f.grant(kOne, "k", 1);
  f.newest_version = granted.version;
  EXPECT_EQ(f.heartbeat(kOne), Code::kOk);
  f.newest_version = Version::from_value(granted.version.value() + 1);
  EXPECT_EQ(f.heartbeat(kOne), Code::kClientNotFound);
  EXPECT_EQ(f.core.totals().forged_versions, 1u);
  EXPECT_EQ(f.core.totals().segments, 0u);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
  f.newest_version = {};
  EXPECT_EQ(f.mount(kOne, {Fixture::segment(1, 10, 2)}), Code::kOk);
  EXPECT_EQ(f.heartbeat(kOne), Code::kOk);
}

TEST(Segments, LateMessagesChangeNothing) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10, 1)});
  f.mount(kOne, {Fixture::segment(1, 10, 2)});
  f.put(kOne, "k");
  f.control = 0;
  EXPECT_EQ(f.mount(kOne, {Fixture::segment(1, 10, 1)}), Code::kStaleCommand);
  f.control = 0;
  EXPECT_EQ(f.unmount(kOne), Code::kStaleCommand);
  f.control = 0;
  EXPECT_EQ(f.heartbeat(kOne), Code::kStaleCommand);
  EXPECT_EQ(f.exist("k"), Code::kOk);
  // Nor after the client has gone: its memory is not brought back.
  f.control = 10;
  EXPECT_EQ(f.unmount(kOne), Code::kOk);
  f.control = 9;
  EXPECT_EQ(f.mount(kOne, {Fixture::segment(1, 10, 2)}), Code::kStaleCommand);
  EXPECT_EQ(f.core.totals().segments, 0u);
}

TEST(Segments, WhatWasAnsweredIsRememberedAfterAClientHasComeBack) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  f.mount(kTwo);
  f.put(kTwo, "k");
  EXPECT_EQ(f.remove(kTwo, "k", 500), Code::kOk);
  f.unmount(kTwo);
  f.mount(kTwo);
  f.put(kOne, "k");
  EXPECT_EQ(f.remove(kTwo, "k", 500), Code::kOk);
  EXPECT_EQ(f.exist("k"), Code::kOk);
}

TEST(Segments, TheEpochRisesAboveAllThatWasSeen) {
  Fixture f;
  f.newest_epoch = Epoch{99};
  f.mount(kOne, {Fixture::segment(1, 10)});
  EXPECT_EQ(f.core.epoch(), Epoch{100});
  f.put(kOne, "old");
  f.newest_epoch = Epoch{100};
  f.mount(kTwo);
  EXPECT_EQ(f.core.epoch(), Epoch{101});
  EXPECT_EQ(f.put(kOne, "k").version, Version(Epoch{101}, 1));
  f.newest_epoch = Epoch{5000};
  EXPECT_EQ(f.mount(ClientId{3}), Code::kBusy);
  EXPECT_TRUE(f.core.wants_epochs());
  EXPECT_EQ(f.core.wanted_limit(), Epoch{5001 + 512});
  f.core.extend_epochs(f.core.wanted_limit());
  EXPECT_FALSE(f.core.wants_epochs());
  EXPECT_EQ(f.mount(ClientId{3}), Code::kOk);
  EXPECT_EQ(f.core.epoch(), Epoch{5001});
  f.newest_epoch = Epoch{0xFFFFFFFF};
  EXPECT_EQ(f.mount(ClientId{4}), Code::kInvalidArgument);
  EXPECT_EQ(f.core.epoch(), Epoch{5001});
}

// Who mounts again has learned the epoch here: it stays, so that nobody's heartbeat is turned away.
TEST(Segments, MountingAgainLeavesTheEpochAsItIs) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  f.newest_epoch = f.core.epoch();
  f.mount(kOne, {Fixture::segment(1, 10)});
  EXPECT_EQ(f.core.epoch(), Epoch{100});
  f.unmount(kOne);
  f.mount(kOne, {Fixture::segment(1, 10)});
  EXPECT_EQ(f.core.epoch(), Epoch{100});
  f.newest_epoch = Epoch{101};
  f.mount(kOne, {Fixture::segment(1, 10)});
  EXPECT_EQ(f.core.epoch(), Epoch{102});
}

TEST(Segments, ThereIsALimit) {
  Fixture f;
  f.check = false;
  std::vector<MountedSegment> segments;
  for (std::uint64_t i = 1; i <= 16385; ++i)
    segments.push_back(Fixture::segment(i, 1));
  const std::vector<Code> codes = f.segments_command(CommandKind::kMount, kOne, segments);
  EXPECT_EQ(codes[16383], Code::kOk);
  EXPECT_EQ(codes[16384], Code::kBusy);
  EXPECT_TRUE(f.core.verify());
  f.check = true;
  EXPECT_EQ(f.unmount(kOne), Code::kOk);
}

TEST(Segments, AHandleOfThePastIsKnownToBeGone) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  const Effect granted = f.grant(kOne, "k", kUnit, 7);
  f.mount(kOne, {});
  f.mount(kTwo, {Fixture::segment(2, 10)});
  EXPECT_EQ(f.core.segment(granted.placements[0].segment), nullptr);
  EXPECT_EQ(f.grant(kOne, "k", kUnit, 7).placements[0], granted.placements[0]);
  EXPECT_EQ(f.publish(kOne, "k", granted).code, Code::kInvalidReplica);
}

// Readable, nothing new, gone at the end of its grace.
TEST(Segments, LeaveAfterTheirGrace) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10), Fixture::segment(2, 10)});
  f.mount(kTwo, {Fixture::segment(3, 10)});
  const std::string_view first = "host1:1";
  f.terms.preferred = {&first, 1};
  f.put(kOne, "there");
  const Effect open = f.grant(kTwo, "open", kUnit);
  ASSERT_EQ(f.core.segment(open.placements[0].segment)->name, first);
  f.grace = std::chrono::seconds(20);
  EXPECT_EQ(f.unmount(kTwo, {Fixture::segment(1, 10)}), Code::kSegmentNotFound) << "not its own";
  ASSERT_EQ(f.unmount(kOne, {Fixture::segment(1, 10)}), Code::kOk);
  EXPECT_EQ(f.core.totals().segments, 3u);
  for (const SegmentUse& use : f.core.segments())
    EXPECT_EQ(use.leaving, use.address.name == first);
  for (int i = 0; i < 5; ++i) {
    const Effect elsewhere = f.put(kOne, "k" + std::to_string(i));
    EXPECT_NE(f.core.segment(elsewhere.placements[0].segment)->name, first);
  }
  EXPECT_EQ(f.publish(kTwo, "open", open).code, Code::kOk) << "it was granted before";
  EXPECT_EQ(f.heartbeat(kOne, {Fixture::segment(1, 10), Fixture::segment(2, 10)}), Code::kOk);
  EXPECT_EQ(f.mount(kOne, {Fixture::segment(1, 10), Fixture::segment(2, 10)}), Code::kOk);
  f.pass(std::chrono::seconds(19));
  EXPECT_EQ(f.exist("there"), Code::kOk);
  EXPECT_EQ(f.exist("open"), Code::kOk);
  f.pass(kSecond);
  EXPECT_EQ(f.exist("there"), Code::kObjectNotFound);
  EXPECT_EQ(f.core.totals().lost_objects, 2u);
  EXPECT_EQ(f.core.totals().segments, 2u);
  EXPECT_EQ(f.heartbeat(kOne, {Fixture::segment(1, 10)}), Code::kSegmentNotFound);
  EXPECT_EQ(f.exist("k0"), Code::kOk);
}

TEST(Segments, AGraceCanBeShortenedOnly) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10), Fixture::segment(2, 10)});
  f.grace = std::chrono::seconds(20);
  f.unmount(kOne, {Fixture::segment(1, 10)});
  f.grace = std::chrono::seconds(5);
  f.unmount(kOne, {Fixture::segment(1, 10)});
  f.grace = std::chrono::seconds(60);
  f.unmount(kOne, {Fixture::segment(1, 10)});
  f.unmount(kOne, {Fixture::segment(2, 10)});
  f.pass(std::chrono::seconds(5));
  EXPECT_EQ(f.core.totals().segments, 1u);
  f.grace = {};
  f.unmount(kOne, {Fixture::segment(2, 10)});
  EXPECT_EQ(f.core.totals().segments, 0u);
  // A client that expires takes its leaving segments with it.
  f.mount(kOne, {Fixture::segment(3, 10)});
  f.grace = std::chrono::hours(1);
  f.unmount(kOne, {Fixture::segment(3, 10)});
  f.pass(std::chrono::seconds(11), {});
  EXPECT_EQ(f.core.totals().segments, 0u);
  EXPECT_EQ(f.core.totals().clients, 0u);
}

// To evict what lies in a segment that is leaving would make no room, so it is left alone; what has
// another replica elsewhere may go.
TEST(Segments, WhatLiesInALeavingSegmentIsNotEvictedInVain) {
  Fixture f;
  f.mount_two_with_both();
  const std::string_view names[] = {"host1:1", "host2:1"};
  f.terms.preferred = {names, 1};
  for (int i = 0; i < 9; ++i)
    f.put(kOne, "leaving" + std::to_string(i));
  f.grace = std::chrono::seconds(60);
  f.unmount(kOne, {Fixture::segment(1, 10)});
  f.terms = {};
  for (int i = 0; i < 9; ++i)
    ASSERT_EQ(f.put(kOne, "k" + std::to_string(i)).code, Code::kOk);
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
  EXPECT_EQ(f.put(kOne, "new", 2 * kUnit).code, Code::kOk);
  EXPECT_EQ(f.exist("both"), Code::kObjectNotFound);
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(f.exist("leaving" + std::to_string(i)), Code::kOk);
  EXPECT_EQ(f.grant(kOne, "large", 11 * kUnit).code, Code::kNoSpace);
  EXPECT_EQ(f.effects.shortage->pinned, 9 * kUnit);
  EXPECT_EQ(f.grant(kOne, "whole", 10 * kUnit).code, Code::kOk);
}

TEST(Segments, AnObjectWhoseOtherReplicaGoesIsLeavingToo) {
  Fixture f;
  f.mount_two_with_both();
  f.grace = std::chrono::seconds(60);
  f.unmount(kOne, {Fixture::segment(1, 10)});
  f.grace = {};
  f.unmount(kTwo);
  ASSERT_EQ(f.locate("both").replicas, 1);
  EXPECT_EQ(f.grant(kOne, "k", 1).code, Code::kNoSpace) << "nothing takes new objects";
  EXPECT_EQ(f.effects.shortage->pinned, kUnit);
}

TEST(Segments, ADeadEngineIsDisowned) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  f.mount(kTwo, {Fixture::segment(2, 10)});
  f.put(kOne, "k");
  f.grant(kOne, "open", 1);
  MountedSegment dead = Fixture::segment(1, 10);
  dead.address.owner = base::Incarnation{9};
  f.segments_command(CommandKind::kDisown, ClientId{}, {dead});
  EXPECT_EQ(f.core.totals().clients, 2u) << "another engine";
  EXPECT_EQ(f.core.segment_named("host1:1")->owner, base::Incarnation{1});
  f.segments_command(CommandKind::kDisown, ClientId{}, {Fixture::segment(1, 10)});
  EXPECT_EQ(f.core.totals().clients, 1u);
  EXPECT_EQ(f.core.totals().disowned_clients, 1u);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
  EXPECT_EQ(f.core.segment_named("host1:1"), nullptr);
  EXPECT_EQ(f.heartbeat(kOne), Code::kClientNotFound);
  MountedSegment namesake = Fixture::segment(3, 10);
  namesake.address.name = "host1:1";
  EXPECT_EQ(f.mount(ClientId{3}, {namesake}), Code::kOk);
}

}  // namespace
}  // namespace mooncake::store::master
