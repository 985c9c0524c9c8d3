// Proves that a cluster under faults keeps its word: no wrong, stale or foreign byte, no
// acknowledged object lost while its owner lives, no call past its deadline, no buffer touched
// after its call, a Master whose sums equal reality, and no pin, lease or byte held for ever. Each
// seed runs the real Master, engines and clients on one thread with a simulated clock and wire.
//
//   MOONCAKE_SIM_SEEDS=N   how many seeds
//   MOONCAKE_SIM_SEED=S    only this one (replay), with its log
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "workload.h"

namespace mooncake::simulation {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

std::string report(std::uint64_t seed, const Outcome& outcome) {
  std::string text = fmt::format("seed {}: replay with MOONCAKE_SIM_SEED={}\n", seed, seed);
  for (const std::string& fault : outcome.faults)
    text += "  fault: " + fault + "\n";
  for (const std::string& violation : outcome.violations)
    text += "  WRONG: " + violation + "\n";
  return text;
}

// Clients took turns in mounting again: each mount raised the epoch, and so turned away the
// heartbeats of the others (1928, 4675, 7418); one heartbeat was asked for within a time to live,
// so that to lose it was to expire (581).
TEST(Simulation, SeedsThatFailedOnce) {
  base::set_log_level(base::LogLevel::kOff);
  for (const std::uint64_t seed : {581u, 1928u, 4675u, 7418u}) {
    WorkloadOptions options;
    options.seed = seed;
    const Outcome outcome = run_seed(options);
    EXPECT_TRUE(outcome.violations.empty()) << report(seed, outcome);
  }
}

TEST(Simulation, ClusterKeepsItsWordUnderFaults) {
  const std::uint64_t only = number_from("MOONCAKE_SIM_SEED", 0);
  base::set_log_level(only != 0 ? base::LogLevel::kInfo : base::LogLevel::kOff);
  const std::uint64_t first = only != 0 ? only : 1;
  const std::uint64_t count = only != 0 ? 1 : number_from("MOONCAKE_SIM_SEEDS", 500);
  Outcome sum;
  std::uint64_t failed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    WorkloadOptions options;
    options.seed = seed;
    const Outcome outcome = run_seed(options);
    if (!outcome.violations.empty()) {
      ADD_FAILURE() << report(seed, outcome);
      if (++failed == 5) break;
      continue;
    }
    ASSERT_GE(outcome.operations, options.operations) << "seed " << seed;
    ASSERT_FALSE(outcome.faults.empty()) << "seed " << seed;
    if (only != 0) fmt::print("{}", report(seed, outcome));
    sum.operations += outcome.operations;
    sum.hits += outcome.hits;
    sum.misses += outcome.misses;
    sum.stored += outcome.stored;
    sum.removals += outcome.removals;
    sum.evictions += outcome.evictions;
    sum.losses += outcome.losses;
    sum.replacements += outcome.replacements;
    sum.places += outcome.places;
    sum.soft_pinned += outcome.soft_pinned;
    sum.hard_pinned += outcome.hard_pinned;
    sum.disowned += outcome.disowned;
    sum.simulated_seconds += outcome.simulated_seconds;
  }
  fmt::print(
      "seeds {}..{}: {} calls, {} hits, {} misses, {} stored, {} replaced, {} removed, {} evicted, "
      "{} lost with their owners, {} places told, {} namesakes let in, {:.0f} simulated seconds\n",
      first, first + count - 1, sum.operations, sum.hits, sum.misses, sum.stored, sum.replacements,
      sum.removals, sum.evictions, sum.losses, sum.places, sum.disowned, sum.simulated_seconds);
  if (only == 0 && failed == 0 && count >= 50) {
    // The run must have been worth something.
    EXPECT_GT(sum.hits, sum.operations / 20);
    EXPECT_GT(sum.evictions, 0u);
    EXPECT_GT(sum.losses, 0u);
    EXPECT_GT(sum.removals, 0u);
    EXPECT_GT(sum.replacements, 0u);
    EXPECT_GT(sum.places, 0u);
    EXPECT_GT(sum.soft_pinned, 0u);
    EXPECT_GT(sum.hard_pinned, 0u);
    EXPECT_GT(sum.disowned, 0u);
  }
}

}  // namespace
}  // namespace mooncake::simulation
