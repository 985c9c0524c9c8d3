// Proves that a plan covers every byte exactly once within its limits, for random batches, and that
// the ranking follows from the capability records.
#include "transfer/selection/planner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace mooncake::transfer {
namespace {

Capabilities made_of(double bandwidth, base::Duration latency, std::uint64_t bytes,
                     std::uint32_t ranges, bool guarded = true) {
  Capabilities capabilities;
  capabilities.bandwidth_bytes_per_second = bandwidth;
  capabilities.latency = latency;
  capabilities.max_bytes_per_request = bytes;
  capabilities.max_ranges_per_request = ranges;
  capabilities.guarded_reads = capabilities.guarded_writes = guarded;
  return capabilities;
}

RC_GTEST_PROP(Planner, CutsEveryByteOnceWithinTheLimits, ()) {
  const auto lengths =
      *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 300));
  RequestLimits limits;
  limits.bytes = *rc::gen::inRange<std::uint64_t>(1, 200);
  limits.ranges = *rc::gen::inRange<std::size_t>(1, 10);
  const auto requests = cut(lengths, limits);
  std::size_t entry = 0;
  std::uint64_t offset = 0;
  const auto skip_empty = [&] {
    while (entry < lengths.size() && offset == lengths[entry]) {
      ++entry;
      offset = 0;
    }
  };
  for (const auto& request : requests) {
    RC_ASSERT(!request.empty());
    RC_ASSERT(request.size() <= limits.ranges);
    std::uint64_t bytes = 0;
    for (const Piece& piece : request) {
      skip_empty();
      RC_ASSERT(piece.entry == entry);
      RC_ASSERT(piece.offset == offset);
      RC_ASSERT(piece.length > 0u);
      RC_ASSERT(piece.length == lengths[entry] || lengths[entry] > limits.bytes);
      offset += piece.length;
      bytes += piece.length;
    }
    RC_ASSERT(bytes <= limits.bytes);
  }
  skip_empty();
  RC_ASSERT(entry == lengths.size());
}

TEST(Planner, FillsRequests) {
  const std::vector<std::uint64_t> lengths(10, 100);
  EXPECT_EQ(cut(lengths, {250, 100}).size(), 5u);
  EXPECT_EQ(cut(lengths, {1000, 4}).size(), 3u);
  EXPECT_TRUE(cut({}, {1, 1}).empty());
}

TEST(Planner, LatencyDecidesForSmallOnesAndBandwidthForLargeOnes) {
  const Capabilities near = made_of(1e9, std::chrono::microseconds(1), 1u << 30, 1000);
  const Capabilities wide = made_of(1e10, std::chrono::microseconds(100), 1u << 30, 1000);
  const std::vector<Candidate> candidates{{&wide, true}, {&near, true}};
  EXPECT_EQ(rank(candidates, {100, 1, false}).front(), 1u);
  EXPECT_EQ(rank(candidates, {100u << 20, 1, false}).front(), 0u);
}

TEST(Planner, LeavesOutWhatCantDoIt) {
  const Capabilities plain = made_of(1e10, {}, 100, 10, false);
  const Capabilities guarded = made_of(1e9, {}, 1000, 5);
  const std::vector<Candidate> candidates{{&plain, true}, {&guarded, true}, {&guarded, false}};
  EXPECT_EQ(rank(candidates, {100, 1, true}), std::vector<std::size_t>{1});
  const auto both = rank(candidates, {100, 1, false});
  EXPECT_EQ(both, (std::vector<std::size_t>{0, 1}));
  const RequestLimits limits = common_limits(candidates, both);
  EXPECT_EQ(limits.bytes, 100u);
  EXPECT_EQ(limits.ranges, 5u);
}

TEST(Planner, ManyRequestsCostManyLatencies) {
  const Capabilities few = made_of(1e9, std::chrono::microseconds(10), 1u << 20, 10);
  EXPECT_NEAR(expected_seconds(few, {1000, 10, false}), 11e-6, 1e-9);
  EXPECT_NEAR(expected_seconds(few, {1000, 11, false}), 21e-6, 1e-9);
  EXPECT_NEAR(expected_seconds(few, {4u << 20, 1, false}), 40e-6 + 4.194304e-3, 1e-9);
}

}  // namespace
}  // namespace mooncake::transfer
