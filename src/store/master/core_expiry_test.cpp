// Tick: clients, grants, and eviction to the watermark within a budget.
#include <gtest/gtest.h>

#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr ClientId kOne = Fixture::kOne;
constexpr ClientId kTwo = Fixture::kTwo;

TEST(Expiry, ASilentClientGoesWithAllItHas) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  f.mount(kTwo, {Fixture::segment(2, 10)});
  f.replicas = 2;
  f.put(kOne, "both");
  f.grant(kTwo, "open", kUnit);
  f.pass(std::chrono::seconds(9), {kOne});
  EXPECT_EQ(f.core.totals().clients, 2u);
  f.pass(std::chrono::seconds(1), {kOne});
  EXPECT_EQ(f.core.totals().clients, 1u);
  EXPECT_EQ(f.core.totals().expired_clients, 1u);
  EXPECT_EQ(f.core.totals().segments, 1u);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
  EXPECT_EQ(f.locate("both").replicas, 1);
  EXPECT_EQ(f.grant(kOne, "open", kUnit).code, Code::kOk);
  EXPECT_EQ(f.grant(kTwo, "other", kUnit).code, Code::kClientNotFound);
  // It comes back, or somebody else takes its place.
  EXPECT_EQ(f.mount(ClientId{3}, {Fixture::segment(2, 10, 2)}), Code::kOk);
  EXPECT_EQ(f.mount(kTwo, {Fixture::segment(2, 10, 3)}), Code::kSegmentExists);
}

TEST(Expiry, TimeInWhichTheMasterStoodStillDoesNotCount) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  f.tick();
  f.now += std::chrono::minutes(5);
  f.tick();
  EXPECT_EQ(f.core.totals().clients, 1u);
  f.pass(std::chrono::seconds(5), {kOne});
  f.pass(std::chrono::seconds(9), {});
  EXPECT_EQ(f.core.totals().clients, 1u);
  f.pass(std::chrono::seconds(1), {});
  EXPECT_EQ(f.core.totals().clients, 0u);
}

TEST(Expiry, AGrantOfALiveClientEnds) {
  Fixture f;
  f.mount(kOne, {Fixture::segment(1, 10)});
  f.mount(kTwo);
  const Effect granted = f.grant(kOne, "k", kUnit);
  f.pass(std::chrono::seconds(29));
  EXPECT_EQ(f.core.totals().open_grants, 1u);
  f.pass(kSecond);
  EXPECT_EQ(f.core.totals().open_grants, 0u);
  EXPECT_EQ(f.core.totals().allocated_bytes, 0u);
  EXPECT_EQ(f.publish(kOne, "k", granted).code, Code::kObjectNotFound);
}

TEST(Expiry, EvictsToTheWatermarkInSteps) {
  CoreOptions options = test_options();
  options.eviction_high_watermark = 0.9;
  options.eviction_ratio = 0.1;
  Fixture f(options);
  f.mount(kOne, {Fixture::segment(1, 1000)});
  f.check = false;
  for (int i = 0; i < 900; ++i)
    f.put(kOne, "k" + std::to_string(i));
  EXPECT_FALSE(f.tick());
  EXPECT_EQ(f.core.totals().evicted_objects, 0u);
  f.put(kOne, "straw");
  f.check = true;
  EXPECT_TRUE(f.tick(30));
  EXPECT_EQ(f.core.totals().evicted_objects, 30u);
  // Below the mark again, but not yet where the round ends.
  while (f.tick(30))
    continue;
  EXPECT_EQ(f.core.totals().evicted_objects, 101u);
  EXPECT_EQ(f.core.totals().eviction_attempts, 1u);
  EXPECT_EQ(f.exist("straw"), Code::kOk);
}

TEST(Expiry, WorkIsProportionalToWhatIsEvicted) {
  CoreOptions options = test_options();
  options.eviction_high_watermark = 0.5;
  Fixture f(options);
  f.check = false;
  f.mount(kOne, {Fixture::segment(1, 2000)});
  for (int i = 0; i < 1500; ++i)
    f.put(kOne, "k" + std::to_string(i));
  for (int i = 0; i < 1400; ++i)
    f.exist("k" + std::to_string(i));
  // 1400 leased ones in front of 100 others: no step is spent on them.
  EXPECT_TRUE(f.tick(60));
  EXPECT_EQ(f.core.totals().evicted_objects, 60u);
  EXPECT_FALSE(f.tick(60));
  EXPECT_EQ(f.core.totals().evicted_objects, 100u);
  EXPECT_TRUE(f.core.verify());
}

TEST(Expiry, TheDepartedAreForgottenInTime) {
  Fixture f;
  f.check = false;
  for (std::uint64_t i = 1; i <= 3000; ++i) {
    f.mount(ClientId{i}, {Fixture::segment(i, 1)});
    f.unmount(ClientId{i});
  }
  EXPECT_TRUE(f.core.verify());
  EXPECT_EQ(f.core.totals().clients, 0u);
  f.control = 0;
  EXPECT_EQ(f.mount(ClientId{3000}), Code::kStaleCommand);
  EXPECT_EQ(f.mount(ClientId{1}), Code::kOk);
}

}  // namespace
}  // namespace mooncake::store::master
