// Hits are counted by whole prefixes from earlier requests only; compared with a direct count over
// the sets of earlier prefixes on random traces.
#include "workload/trace_stats.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace mooncake::workload {
namespace {

using Ids = std::vector<std::uint64_t>;

Request request(Ids ids) {
  const std::uint64_t input = ids.size() * kBlockTokens - 12;
  return {.timestamp_ms = 7, .input_length = input, .output_length = 2, .hash_ids = std::move(ids)};
}

TEST(Percentile, IsByNearestRank) {
  Ids values(200);
  for (std::uint64_t i = 0; i < 200; ++i) {
    values[i] = i + 1;
  }
  EXPECT_EQ(percentile(values, 50), 100u);
  EXPECT_EQ(percentile(values, 99), 198u);
  EXPECT_EQ(percentile(values, 100), 200u);
  EXPECT_EQ(percentile(values, 0.1), 1u);
  EXPECT_EQ(percentile({}, 50), 0u);
  EXPECT_EQ(percentiles({3, 1, 2}), (Percentiles{.p50 = 2, .p90 = 3, .p99 = 3, .max = 3}));
}

TEST(TraceStats, CountsBlocksTokensAndHits) {
  StatsCollector collector;
  EXPECT_EQ(collector.add(request({0, 1, 2})), 0u);
  EXPECT_EQ(collector.add(request({0, 1, 3, 2})), 2u);  // 2 is known, but behind a miss
  EXPECT_EQ(collector.add(request({0, 1, 2})), 3u);
  EXPECT_EQ(collector.add(request({4, 4})), 0u);  // not by its own request
  const TraceStats stats = collector.stats();
  EXPECT_EQ(stats.requests, 4u);
  EXPECT_EQ(stats.duration_ms, 7u);
  EXPECT_EQ(stats.blocks, 12u);
  EXPECT_EQ(stats.unique_blocks, 5u);
  EXPECT_EQ(stats.hit_blocks, 5u);
  EXPECT_EQ(stats.input_tokens, 12u * 512 - 4 * 12);
  EXPECT_EQ(stats.output_tokens, 8u);
  EXPECT_EQ(stats.hit_tokens, 5u * 512 - 12);
  EXPECT_EQ(stats.blocks_per_request, (Percentiles{.p50 = 3, .p90 = 4, .p99 = 4, .max = 4}));
  EXPECT_EQ(stats.input_length.max, 4u * 512 - 12);
  EXPECT_DOUBLE_EQ(stats.hit_ratio(), 5.0 / 12.0);
}

TEST(TraceStats, OfNothingAreZero) {
  const TraceStats stats = trace_stats({});
  EXPECT_EQ(stats.blocks, 0u);
  EXPECT_EQ(stats.hit_ratio(), 0.0);
}

RC_GTEST_PROP(TraceStats, HitsAreKnownPrefixes, ()) {
  const auto id = rc::gen::inRange<std::uint64_t>(0, 6);
  const auto trace =
      *rc::gen::container<std::vector<Ids>>(rc::gen::nonEmpty(rc::gen::container<Ids>(id)));
  std::set<std::uint64_t> earlier;
  StatsCollector collector;
  for (const Ids& ids : trace) {
    std::size_t hits = 0;
    for (std::size_t end = 1; end <= ids.size(); ++end) {
      hits += std::all_of(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(end),
                          [&](std::uint64_t one) { return earlier.contains(one); })
                  ? 1
                  : 0;
    }
    RC_ASSERT(collector.add(request(ids)) == hits);
    earlier.insert(ids.begin(), ids.end());
  }
  RC_ASSERT(collector.stats().unique_blocks == earlier.size());
}

}  // namespace
}  // namespace mooncake::workload
