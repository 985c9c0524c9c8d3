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
