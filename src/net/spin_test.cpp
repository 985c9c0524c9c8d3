// Spin looks for work while waits are short, sleeps while they are long, and finds out when that
// changes.
#include "net/spin.h"

#include <gtest/gtest.h>

namespace mooncake::net {
namespace {

using namespace std::chrono_literals;

int spins_of(Spin& spin, int waits, base::Duration each) {
  int spins = 0;
  for (int i = 0; i < waits; ++i) {
    spins += spin.allowance() > 0ns;
    spin.waited(each);
  }
  return spins;
}

TEST(Spin, SleepsThroughLongWaits) {
  Spin spin(40us);
  EXPECT_LE(spins_of(spin, 640, 1ms), 10);
}

TEST(Spin, LooksWhileWaitsAreShort) {
  Spin spin(40us);
  spins_of(spin, 10, 5us);
  EXPECT_EQ(spins_of(spin, 100, 5us), 100);
}

TEST(Spin, AFewLongWaitsPutItToSleepAndAFewShortOnesWakeIt) {
  Spin spin(40us);
  spins_of(spin, 100, 5us);
  EXPECT_LE(spins_of(spin, 100, 10s), 5);
  spins_of(spin, 8, 5us);
  EXPECT_EQ(spins_of(spin, 10, 5us), 10);
}

// The other side sleeps as long as this one does: its waits are long for that reason alone.
TEST(Spin, FindsOutThatWaitsAreLongOnlyForTheOthersWakeUps) {
  Spin spin(40us);
  bool slept = true;
  int spins = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool spun = spin.allowance() > 0ns;
    spin.waited(spun ? 8us : 55us);
    spins += spun;
    slept = !spun;
  }
  EXPECT_FALSE(slept);
  EXPECT_GT(spins, 800);
}

// Who gives its core to others that have much to do gets it back late: then for a while it doesn't.
TEST(Spin, KeepsACrowdedCoreForLessTime) {
  Spin spin(40us);
  spins_of(spin, 10, 5us);
  spin.was_away(100us);
  EXPECT_EQ(spin.allowance(), 40us);
  spin.was_away(3ms);
  for (std::uint32_t wait = 1; wait < Spin::kCrowded; ++wait) {
    EXPECT_EQ(spin.allowance(), 20us);
    spin.waited(5us);
  }
  EXPECT_EQ(spin.allowance(), 40us);
}

TEST(Spin, NeverOnASingleCore) {
  Spin spin(0us);
  EXPECT_EQ(spins_of(spin, 200, 1us), 0);
}

}  // namespace
}  // namespace mooncake::net
