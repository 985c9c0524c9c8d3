// Proves that extents which their owner does not give yet rest for a while: the next grant gets
// others, and they come back by time, with their segment, and never in a number without bound.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr ClientId kOne = Fixture::kOne;
constexpr ClientId kTwo = Fixture::kTwo;

class Resting : public ::testing::Test {
 protected:
  Effect refuse(std::string_view key, const Effect& granted) {
    CommandItem item;
    item.key = key;
    item.version = granted.version;
    Command command;
    command.kind = CommandKind::kRevoke;
    command.client = kOne;
    command.sequence = ++f.numbers;
    command.oldest_open = f.oldest_open;
    command.items = {&item, 1};
    command.set_aside = true;
    return f.apply(command).front();
  }
  void pass(base::Duration time) { f.now += time; }
  // As a writer does whose data the owners don't take; how often it was granted something.
  int put_in_vain(std::string_view key, std::uint64_t size = kUnit) {
    for (int grants = 0; grants < 256; ++grants) {
      const Effect granted = f.grant(kOne, key, size);
      if (granted.code == Code::kNoSpace) return grants;
      EXPECT_EQ(granted.code, Code::kOk);
      EXPECT_EQ(refuse(key, granted).code, Code::kOk);
    }
    return 256;
  }
  // Each in one unit, of segments with room for kFull objects in all.
  static constexpr int kFull = 400;
  void fill() {
    for (int i = 0; i < kFull; ++i)
      ASSERT_EQ(f.put(kOne, "old" + std::to_string(i)).code, Code::kOk);
  }
  static bool same_place(const Effect& a, const Effect& b) {
    return a.placements[0].segment == b.placements[0].segment &&
           a.placements[0].unit == b.placements[0].unit;
  }

  Fixture f;
};

TEST_F(Resting, TheNextGrantGetsAnotherExtent) {
  f.mount(kOne, {Fixture::segment(1, 2)});
  const Effect first = f.grant(kOne, "k", kUnit);
  ASSERT_EQ(first.code, Code::kOk);
  EXPECT_EQ(refuse("k", first).code, Code::kOk);
  EXPECT_EQ(f.core.totals().resting_extents, 1u);
  EXPECT_EQ(f.core.totals().allocated_bytes, kUnit);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
  const Effect second = f.grant(kOne, "k", kUnit);
  ASSERT_EQ(second.code, Code::kOk);
  EXPECT_FALSE(same_place(first, second));
  EXPECT_EQ(refuse("k", second).code, Code::kOk);
  EXPECT_EQ(f.grant(kOne, "k", kUnit).code, Code::kNoSpace);
  ASSERT_TRUE(f.effects.shortage);
  EXPECT_EQ(f.effects.shortage->resting, 2 * kUnit);
  EXPECT_EQ(f.effects.shortage->held, 0u);
  pass(Core::kRest - std::chrono::nanoseconds(1));
  EXPECT_EQ(f.grant(kOne, "k", kUnit).code, Code::kNoSpace);
  pass(std::chrono::nanoseconds(1));
  EXPECT_EQ(f.grant(kOne, "k", kUnit).code, Code::kOk);
  EXPECT_EQ(f.core.totals().resting_extents, 0u);
}

TEST_F(Resting, EndsByATickToo) {
  f.mount(kOne, {Fixture::segment(1, 2)});
  refuse("k", f.grant(kOne, "k", kUnit));
  pass(Core::kRest);
  f.tick();
  EXPECT_EQ(f.core.totals().resting_extents, 0u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 0u);
}

TEST_F(Resting, GoesWithItsSegment) {
  f.mount(kOne, {Fixture::segment(1, 2)});
  f.mount(kTwo, {Fixture::segment(2, 2)});
  f.replicas = 2;
  refuse("k", f.grant(kOne, "k", kUnit));
  EXPECT_EQ(f.core.totals().resting_extents, 2u);
  f.unmount(kTwo);
  EXPECT_EQ(f.core.totals().resting_extents, 1u);
  f.unmount(kOne);
  EXPECT_EQ(f.core.totals().resting_extents, 0u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 0u);
}

TEST_F(Resting, AReplicaThatIsLeftOutRests) {
  f.mount(kOne, {Fixture::segment(1, 1)});
  f.mount(kTwo, {Fixture::segment(2, 1)});
  f.replicas = 2;
  const Effect granted = f.grant(kOne, "k", kUnit);
  ASSERT_EQ(granted.replicas, 2);
  auto arrived = f.incarnations(granted);
  arrived.back() = base::SegmentIncarnation{};
  ASSERT_EQ(f.publish(kOne, "k", granted, arrived).code, Code::kOk);
  EXPECT_EQ(f.core.totals().resting_extents, 1u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 2 * kUnit);
  f.replicas = 1;
  pass(Core::kRest);
  const Effect next = f.grant(kOne, "other", kUnit);
  ASSERT_EQ(next.code, Code::kOk);
  EXPECT_EQ(f.core.totals().resting_extents, 0u);
  EXPECT_EQ(f.core.totals().objects, 1u);
}

// As its owner may be dead: only when no other segment has room, whatever the writer prefers.
TEST_F(Resting, ItsSegmentComesLast) {
  f.mount(kOne, {Fixture::segment(1, 20)});
  f.mount(kTwo, {Fixture::segment(2, 10)});
  const std::string_view dead = "host1:1";
  f.terms.preferred = {&dead, 1};
  const Effect first = f.grant(kOne, "k", kUnit);
  refuse("k", first);
  for (int i = 0; i < 10; ++i) {
    const Effect next = f.grant(kOne, "k" + std::to_string(i), kUnit);
    EXPECT_EQ(f.core.segment(next.placements[0].segment)->name, "host2:1");
  }
  EXPECT_EQ(f.core.segment(f.grant(kOne, "more", kUnit).placements[0].segment)->name, dead);
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
  pass(Core::kRest);
  EXPECT_EQ(f.core.segment(f.grant(kOne, "later", kUnit).placements[0].segment)->name, dead);
}

// A pool full of what readers have pinned: a put that fails has not emptied it.
TEST_F(Resting, APutThatIsRefusedEvictsWithABound) {
  constexpr std::size_t kMost = Core::kMostGrantsInVain;
  f.mount(kOne, {Fixture::segment(1, kFull)});
  fill();
  EXPECT_EQ(put_in_vain("k"), int{kMost});
  EXPECT_EQ(f.core.totals().evicted_objects, kMost);
  // What it evicted is free again later, and is tried first: nothing more goes before it is used.
  pass(Core::kRest);
  EXPECT_EQ(put_in_vain("k"), int{2 * kMost});
  EXPECT_EQ(f.core.totals().evicted_objects, 2 * kMost);
  // Others are not held up, and it isn't either once the room is there.
  EXPECT_EQ(f.put(kOne, "other").code, Code::kOk);
  EXPECT_EQ(f.core.totals().evicted_objects, 2 * kMost + 1);
  pass(Core::kRest);
  EXPECT_EQ(f.put(kOne, "k").code, Code::kOk);
  EXPECT_EQ(f.core.totals().evicted_objects, 2 * kMost + 1);
}

TEST_F(Resting, GrantsInVainAreCountedOnceForAllReplicas) {
  f.mount(kOne, {Fixture::segment(1, kFull / 2)});
  f.mount(kTwo, {Fixture::segment(2, kFull / 2)});
  fill();
  f.replicas = 2;
  EXPECT_EQ(put_in_vain("k"), int{Core::kMostGrantsInVain});
}

TEST_F(Resting, GrantsOfFreeRoomAreNoneInVain) {
  f.mount(kOne, {Fixture::segment(1, kFull + 50)});
  fill();
  EXPECT_EQ(put_in_vain("k"), 50 + int{Core::kMostGrantsInVain});
  EXPECT_EQ(f.core.totals().evicted_objects, Core::kMostGrantsInVain);
  f.unmount(kOne);
  f.mount(kOne, {Fixture::segment(1, 2)});
  EXPECT_EQ(f.put(kOne, "k").code, Code::kOk);
}

TEST_F(Resting, IsBounded) {
  f.mount(kOne, {Fixture::segment(1, Core::kMaxResting + 10)});
  f.check = false;
  for (std::size_t i = 0; i < Core::kMaxResting + 5; ++i) {
    f.oldest_open = f.numbers + 1;
    const Effect granted = f.grant(kOne, "k", kUnit);
    ASSERT_EQ(granted.code, Code::kOk);
    ASSERT_EQ(refuse("k", granted).code, Code::kOk);
  }
  EXPECT_EQ(f.core.totals().resting_extents, Core::kMaxResting);
  EXPECT_EQ(f.core.totals().allocated_bytes, Core::kMaxResting * kUnit);
  EXPECT_TRUE(f.core.verify());
}

TEST_F(Resting, APlainRevokeGivesTheRoomBackAtOnce) {
  f.mount(kOne, {Fixture::segment(1, 1)});
  const Effect granted = f.grant(kOne, "k", kUnit);
  EXPECT_EQ(f.revoke(kOne, "k", granted.version).code, Code::kOk);
  EXPECT_EQ(f.core.totals().resting_extents, 0u);
  EXPECT_TRUE(same_place(granted, f.grant(kOne, "other", kUnit)));
}

}  // namespace
}  // namespace mooncake::store::master
