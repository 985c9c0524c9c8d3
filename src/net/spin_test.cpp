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

TEST(Spin, NeverOnASingleCore) {
  Spin spin(0us);
  EXPECT_EQ(spins_of(spin, 200, 1us), 0);
}

}  // namespace
}  // namespace mooncake::net
