// SliceScheduler over virtual rails: each slice ends once, windows are kept, rails are used by what
// they can carry, priorities get their shares, and a rail that fails is left alone but not for
// good.
#include "transfer/selection/slice_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/random.h"

namespace mooncake::transfer {
namespace {

using namespace std::chrono_literals;
using base::Duration;
using base::TimePoint;
using Decision = SliceScheduler::Decision;
using End = SliceScheduler::End;
using Slice = SliceScheduler::Slice;

constexpr std::uint64_t kMiB = 1u << 20;

// Carries its slices one after the other. A dead one keeps them until they are given up as stuck.
struct VirtualRail {
  double bytes_per_second = 1e9;
  Duration latency = 50us;
  bool dead = false;
  bool broken = false;  // what is sent fails at once
  TimePoint free_at{};
  std::uint64_t moved = 0;
  std::size_t begun = 0;
};

class World {
 public:
  explicit World(std::vector<VirtualRail> rails, SliceScheduler::Rules rules = {})
      : scheduler(rules), rules_(rules), rails_(std::move(rails)) {
    for (std::size_t i = 0; i < rails_.size(); ++i)
      scheduler.add_rail({1e9, 50us});
  }

  SliceId add(std::uint64_t bytes, Priority priority = Priority::kNormal,
              TimePoint deadline = TimePoint::max()) {
    Slice slice;
    slice.id = next_id_++;
    slice.bytes = bytes;
    slice.priority = priority;
    slice.deadline = deadline;
    slices_[slice.id] = slice;
    scheduler.enqueue(slice);
    pump();
    return slice.id;
  }
  // Failed and stuck slices go again, and avoid the rail.
  void pump() {
    while (const auto decision = scheduler.next(now))
      act(*decision);
  }
  // To the next event; false when there is none.
  bool step() {
    const auto deadline = scheduler.next_deadline();
    if (events_.empty() && !deadline) return false;
    const bool event_first =
        !events_.empty() && (!deadline || std::get<0>(*events_.begin()) <= *deadline);
    if (event_first) {
      const auto [when, slice, end] = *events_.begin();
      events_.erase(events_.begin());
      now = std::max(now, when);
      finish(slice, end);
    } else {
      now = std::max(now, *deadline);
    }
    pump();
    return true;
  }
  void run_until(TimePoint until) {
    while (now < until && step()) {
    }
  }
  void run() {
    while (step()) {
    }
  }
  VirtualRail& rail(std::size_t i) { return rails_[i]; }
  std::size_t on_the_way() const { return on_rail_.size(); }

  SliceScheduler scheduler;
  TimePoint now{};
  std::multiset<SliceId> done, expired;
  std::map<Priority, std::uint64_t> bytes_done;
  std::function<void(SliceId)> on_done = [](SliceId) {};

 private:
  void act(const Decision& decision) {
    if (!decision.goes) {
      expired.insert(decision.slice);
      EXPECT_LE(slices_[decision.slice].deadline, now);
      return;
    }
    const Slice& slice = slices_[decision.slice];
    VirtualRail& rail = rails_[decision.rail];
    const auto& state = scheduler.rail(decision.rail);
    EXPECT_TRUE(state.slices_on_the_way == 1 || (state.bytes_on_the_way <= rules_.window_bytes &&
                                                 state.slices_on_the_way <= rules_.window_slices));
    EXPECT_GE(decision.patience, rules_.least_patience);
    ++rail.begun;
    on_rail_[decision.slice] = decision.rail;
    if (rail.broken) {
      events_.insert({now + rail.latency, slice.id, End::kFailed});
      return;
    }
    rail.free_at = std::max(rail.free_at, now) +
                   std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
                       static_cast<double>(slice.bytes) / rail.bytes_per_second));
    const TimePoint ends = rail.free_at + rail.latency;
    const bool stuck = rail.dead || ends > now + decision.patience;
    events_.insert(
        {stuck ? now + decision.patience : ends, slice.id, stuck ? End::kStuck : End::kDone});
  }
  void finish(SliceId id, End end) {
    const RailId on = on_rail_.at(id);
    on_rail_.erase(id);
    scheduler.finished(id, end, now);
    if (end == End::kDone) {
      done.insert(id);
      rails_[on].moved += slices_[id].bytes;
      bytes_done[slices_[id].priority] += slices_[id].bytes;
      on_done(id);
      return;
    }
    Slice again = slices_[id];
    again.id = next_id_++;
    again.avoid = on;
    slices_[again.id] = again;
    scheduler.enqueue(again);
  }
  const SliceScheduler::Rules rules_;
  std::vector<VirtualRail> rails_;
  SliceId next_id_ = 1;
  std::map<SliceId, Slice> slices_;
  std::map<SliceId, RailId> on_rail_;
  std::set<std::tuple<TimePoint, SliceId, End>> events_;
};

std::vector<VirtualRail> some_rails(base::Random& random) {
  std::vector<VirtualRail> rails(1 + random.below(5));
  for (VirtualRail& rail : rails) {
    rail.bytes_per_second = 1e8 * static_cast<double>(1 + random.below(50));
    rail.latency = std::chrono::microseconds(10 + random.below(500));
    rail.broken = random.chance(0.1);
    rail.dead = random.chance(0.1);
  }
  rails.front().broken = rails.front().dead = false;
  return rails;
}

// Whatever the rails do, while one of them works.
TEST(SliceScheduler, EverySliceEndsOnceAndNothingIsLeftBehind) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::Random random(seed);
    World world(some_rails(random));
    std::size_t added = 0, withdrawn = 0;
    for (int round = 0; round < 40; ++round) {
      for (std::uint64_t i = random.below(20); i > 0; --i) {
        const auto bytes = random.chance(0.3) ? 1 + random.below(64 * kMiB) : random.below(8192);
        const auto deadline = random.chance(0.1) ? world.now + 5ms : TimePoint::max();
        const SliceId id = world.add(bytes, static_cast<Priority>(random.below(3)), deadline);
        ++added;
        if (random.chance(0.1) && world.scheduler.withdraw(id)) ++withdrawn;
      }
      for (std::uint64_t i = random.below(30); i > 0; --i)
        world.step();
    }
    world.run();
    EXPECT_EQ(world.done.size() + world.expired.size() + withdrawn, added);
    EXPECT_EQ(world.scheduler.waiting(), 0u);
    EXPECT_EQ(world.on_the_way(), 0u);
    for (RailId rail = 0; rail < world.scheduler.rails(); ++rail) {
      EXPECT_EQ(world.scheduler.rail(rail).bytes_on_the_way, 0u);
      EXPECT_EQ(world.scheduler.rail(rail).slices_on_the_way, 0u);
    }
  }
}

// A long queue of equal slices gets nearly all that the rails have together, and their rates are
// known in the end.
TEST(SliceScheduler, ALongQueueUsesAllRails) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::Random random(seed);
    std::vector<VirtualRail> rails(2 + random.below(5));
    double sum = 0;
    for (VirtualRail& rail : rails) {
      rail.bytes_per_second = 1e8 * static_cast<double>(5 + random.below(20));
      sum += rail.bytes_per_second;
    }
    World world(rails);
    constexpr std::size_t kSlices = 2000;
    constexpr std::uint64_t kEach = 4 * kMiB;
    for (std::size_t i = 0; i < kSlices; ++i)
      world.add(kEach);
    world.run();
    const double took = std::chrono::duration<double>(world.now.time_since_epoch()).count();
    EXPECT_GE(static_cast<double>(kSlices * kEach) / took, 0.95 * sum);
    for (RailId i = 0; i < rails.size(); ++i) {
      const double found = world.scheduler.rail(i).estimate.bytes_per_second;
      EXPECT_NEAR(found / rails[i].bytes_per_second, 1.0, 0.2) << "rail " << i;
    }
  }
}

// One slice after the other stays where it is: a second connection is not opened for it.
TEST(SliceScheduler, SlicesOneAtATimeStayOnTheirRail) {
  World world({VirtualRail(), VirtualRail(), VirtualRail()});
  for (int i = 0; i < 1000; ++i) {
    world.add(4096);
    world.run();
  }
  EXPECT_EQ(world.rail(0).begun, 1000u);
}

// A small slice does not stand behind a large one while another rail is empty.
TEST(SliceScheduler, ASmallSlicePassesALargeOne) {
  World world({VirtualRail(), VirtualRail()});
  world.add(32 * kMiB);
  world.add(4096);
  EXPECT_EQ(world.rail(0).begun, 1u);
  EXPECT_EQ(world.rail(1).begun, 1u);
}

// A much slower rail gets nothing that the faster one does sooner, however long its queue.
TEST(SliceScheduler, ASlowRailDoesNotHoldUpABatch) {
  VirtualRail slow;
  slow.bytes_per_second = 1e6;
  World world({VirtualRail(), slow});
  for (int i = 0; i < 400; ++i)
    world.add(kMiB);
  world.run();
  const TimePoint learned = world.now;
  for (int i = 0; i < 400; ++i)
    world.add(kMiB);
  world.run();
  const double took = std::chrono::duration<double>(world.now - learned).count();
  EXPECT_LE(took, 1.2 * 400 * kMiB / 1e9);
}

// While all have slices waiting.
TEST(SliceScheduler, PrioritiesShareByWeight) {
  World world({VirtualRail()});
  base::Random random(1);
  std::map<SliceId, Priority> of;
  world.on_done = [&](SliceId id) {
    const Priority same = of[id];
    of[world.add(1 + random.below(8 * kMiB), same)] = same;
  };
  for (int i = 0; i < 60; ++i) {
    const auto priority = static_cast<Priority>(i % 3);
    of[world.add(1 + random.below(8 * kMiB), priority)] = priority;
  }
  world.run_until(TimePoint(60s));
  const auto share = [&](Priority priority) {
    return static_cast<double>(world.bytes_done[priority]) /
           static_cast<double>(world.bytes_done[Priority::kBackground]);
  };
  EXPECT_NEAR(share(Priority::kNormal), 4.0, 0.6);
  EXPECT_NEAR(share(Priority::kUrgent), 16.0, 2.4);
}

// What fails is tried elsewhere, and the broken rail is asked less and less often.
TEST(SliceScheduler, ABrokenRailIsProbedExponentially) {
  VirtualRail broken;
  broken.broken = true;
  World world({broken, VirtualRail()});
  world.on_done = [&](SliceId) {
    if (world.now < TimePoint(60s)) world.add(8 * kMiB);
  };
  for (int i = 0; i < 8; ++i)
    world.add(8 * kMiB);
  world.run();
  // 100 ms doubled to 10 s: 0.1 0.3 0.7 1.5 3.1 6.3 12.7 22.7 ... 52.7, and what was first sent.
  EXPECT_LE(world.rail(0).begun, 8u + 12u);
  EXPECT_GE(world.rail(0).begun, 8u);
  EXPECT_GE(world.rail(1).moved, static_cast<std::uint64_t>(0.9 * 60e9));
}

TEST(SliceScheduler, ARailThatIsWellAgainIsUsedAgain) {
  World world({VirtualRail(), VirtualRail()});
  world.rail(0).broken = true;
  world.on_done = [&](SliceId) {
    if (world.now < TimePoint(30s)) world.add(8 * kMiB);
  };
  for (int i = 0; i < 8; ++i)
    world.add(8 * kMiB);
  world.run_until(TimePoint(5s));
  EXPECT_GT(world.scheduler.rail(0).failures, 3u);
  world.rail(0).broken = false;
  world.run_until(TimePoint(15s));
  EXPECT_EQ(world.scheduler.rail(0).failures, 0u);
  const std::uint64_t before = world.rail(0).moved;
  world.run();
  EXPECT_GE(static_cast<double>(world.rail(0).moved - before), 0.7 * 15e9);
}

// Stuck slices are given up in time and arrive by the other rail.
TEST(SliceScheduler, ADeadRailDelaysByItsPatienceOnce) {
  World world({VirtualRail(), VirtualRail()});
  world.rail(0).dead = true;
  for (int i = 0; i < 16; ++i)
    world.add(kMiB);
  world.run();
  EXPECT_EQ(world.done.size(), 16u);
  EXPECT_LE(world.now, TimePoint(2500ms));
}

// Several slices that go down together are one failure.
TEST(SliceScheduler, OneBreakIsOneFailure) {
  World world({VirtualRail(), VirtualRail()});
  world.rail(0).broken = true;
  for (int i = 0; i < 20; ++i)
    world.add(kMiB);
  world.run_until(TimePoint(1ms));
  EXPECT_LE(world.scheduler.rail(0).failures, 1u);
}

TEST(SliceScheduler, WithoutAUsableRailTheBestOfThemIsTried) {
  World world({VirtualRail()});
  world.rail(0).broken = true;
  world.add(4096);
  for (int i = 0; i < 3; ++i)
    world.step();
  EXPECT_GE(world.scheduler.rail(0).failures, 2u);
  EXPECT_EQ(world.rail(0).begun, 4u);
}

TEST(SliceScheduler, WhatWaitsTooLongIsForgotten) {
  SliceScheduler::Rules rules;
  rules.window_slices = 1;
  World world({VirtualRail()}, rules);
  world.add(1000 * kMiB);
  const SliceId late = world.add(1, Priority::kUrgent, TimePoint(10ms));
  world.run();
  EXPECT_EQ(world.expired, std::multiset<SliceId>{late});
  EXPECT_EQ(world.done.size(), 1u);
}

}  // namespace
}  // namespace mooncake::transfer
