#include "explorer.h"

#include <gtest/gtest.h>

namespace mooncake::models {
namespace {

// A counter that walks from 0 to `end`; the switches plant one mistake each.
struct Walk {
  struct State {
    uint8_t at;
    bool operator==(const State&) const = default;
  };

  uint8_t end = 5;
  uint8_t forbidden = 255;
  uint8_t cycle_at = 255;    // from here a fair step leads back to the start
  uint8_t blocked_at = 255;  // from here only a fault leads on

  State initial() const { return {0}; }
  void steps(const State& state, Steps<State>& out) const {
    if (state.at == end) return;
    const State next{static_cast<uint8_t>(state.at + 1)};
    if (state.at == blocked_at) return out.fault({"fault to %", next.at}, next);
    out.fair({"walk to %", next.at}, next);
    if (state.at == cycle_at) out.fair({"back"}, {0});
    if (state.at + 2 <= end) out.fault({"jump to %", state.at + 2}, {uint8_t(state.at + 2)});
  }
  const char* broken(const State& state) const {
    return state.at == forbidden ? "forbidden place" : nullptr;
  }
  bool settled(const State& state) const { return state.at == end; }
  std::string describe(const State& state) const { return "at " + std::to_string(state.at); }
};

// Proves that a sound model passes, by counting what a pencil counts: six places, five walks, four
// jumps.
TEST(Explorer, CountsStatesAndProvesProgress) {
  const Report report = explore(Walk{});
  EXPECT_TRUE(report.proven()) << report.summary();
  EXPECT_EQ(report.states, 6u);
  EXPECT_EQ(report.transitions, 9u);
  EXPECT_EQ(report.depth, 3u);
}

// Proves that a broken invariant is found on a shortest path, by a place that two jumps reach
// sooner than four walks.
TEST(Explorer, GivesAShortestTrace) {
  Walk walk;
  walk.forbidden = 4;
  const Report report = explore(walk);
  EXPECT_EQ(report.violation, "forbidden place");
  ASSERT_EQ(report.trace.size(), 3u) << report.trace_text();
  EXPECT_NE(report.trace[1].find("FAULT jump to 2"), std::string::npos) << report.trace_text();
  EXPECT_NE(report.trace[2].find("at 4"), std::string::npos) << report.trace_text();
}

// Proves that being stuck is no progress even where a fault would help, by a place that only a
// fault leaves.
TEST(Explorer, FindsAStateWithoutFairSteps) {
  Walk walk;
  walk.blocked_at = 3;
  const Report report = explore(walk);
  EXPECT_EQ(report.violation, "progress");
  EXPECT_NE(report.trace_text().find("no fair step is left"), std::string::npos);
}

// Proves that running in circles is no progress, by a step that leads back to the start.
TEST(Explorer, FindsACycleOfFairSteps) {
  Walk walk;
  walk.cycle_at = 4;
  const Report report = explore(walk);
  EXPECT_EQ(report.violation, "progress");
  EXPECT_NE(report.trace_text().find("was there before"), std::string::npos);
}

// Proves that an exploration that was cut short is never taken for a proof.
TEST(Explorer, AStateLimitIsNoProof) {
  const Report report = explore(Walk{}, 3);
  EXPECT_FALSE(report.complete);
  EXPECT_FALSE(report.proven());
}

}  // namespace
}  // namespace mooncake::models
