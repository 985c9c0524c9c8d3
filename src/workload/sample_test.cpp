// The sample is a trace in the published form whose sizes and reuse are those of the conversation
// trace, for few and many requests and any seed; and it is the same everywhere.
#include "workload/sample.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_set>

#include "base/hash.h"
#include "workload/trace_stats.h"

namespace mooncake::workload {
namespace {

// Of the conversation trace, measured by published_trace_test.cpp.
constexpr double kP50Blocks = 14;
constexpr double kP99Blocks = 167;

void expect_like_conversations(std::size_t requests, std::uint64_t seed) {
  SCOPED_TRACE(std::to_string(requests) + " requests, seed " + std::to_string(seed));
  const std::vector<Request> sample = generate_sample({.requests = requests, .seed = seed});
  ASSERT_EQ(sample.size(), requests);
  const Result<void> checked = check_published_form(sample);
  ASSERT_TRUE(checked) << checked.error().message();
  const TraceStats stats = trace_stats(sample);
  EXPECT_NEAR(stats.hit_ratio(), 0.366, 0.02);
  EXPECT_NEAR(static_cast<double>(stats.blocks_per_request.p50), kP50Blocks, 0.1 * kP50Blocks);
  EXPECT_NEAR(static_cast<double>(stats.blocks_per_request.p99), kP99Blocks, 0.1 * kP99Blocks);
  const double seconds = static_cast<double>(stats.duration_ms) / 1000.0;
  EXPECT_NEAR(static_cast<double>(requests) / seconds, 3.4, 0.7);
}

TEST(Sample, IsLikeConversationsForAnySeed) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    expect_like_conversations(kDefaultSampleRequests, seed);
    expect_like_conversations(200, seed << 32 | seed);
  }
  expect_like_conversations(kDefaultSampleRequests, UINT64_MAX);
}

TEST(Sample, IsLikeConversationsForAnySize) {
  for (std::size_t requests = 200; requests < 700; ++requests) {
    expect_like_conversations(requests, requests);
  }
  for (const std::size_t requests : {1'000u, 1'999u, 5'000u, 12'000u}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      expect_like_conversations(requests, seed);
    }
  }
}

TEST(Sample, BeginsEveryRequestWithTheSystemPrompt) {
  for (const Request& request : generate_sample({})) {
    EXPECT_EQ(request.hash_ids.front(), 0u);
  }
}

TEST(Sample, MixesFreshRequestsWithTurnsAndEdits) {
  const std::vector<Request> sample = generate_sample({.requests = 3'000});
  StatsCollector collector;
  std::unordered_set<std::uint64_t> last_full;
  std::size_t fresh = 0, turns = 0, edits = 0;
  for (const Request& request : sample) {
    const std::size_t hits = collector.add(request);
    if (hits <= 1) {
      ++fresh;
    } else if (last_full.contains(request.hash_ids[hits - 1])) {
      ++turns;
    } else {
      ++edits;
    }
    const std::uint64_t full = request.input_length / kBlockTokens;
    last_full.insert(request.hash_ids[full - 1]);
  }
  EXPECT_GT(fresh, sample.size() / 2);
  EXPECT_GT(turns, sample.size() / 4);
  EXPECT_GT(edits, sample.size() / 50);
}

TEST(Sample, IsTheSameOnEveryPlatform) {
  std::string text;
  for (const Request& request : generate_sample({.requests = 400, .seed = 1})) {
    append_line(request, text);
  }
  EXPECT_EQ(base::crc32c(std::as_bytes(std::span(text.data(), text.size()))), 1857240023u);
}

TEST(Sample, ASeedMakesAnotherTrace) {
  EXPECT_EQ(generate_sample({.seed = 7}), generate_sample({.seed = 7}));
  EXPECT_NE(generate_sample({.seed = 7}), generate_sample({.seed = 8}));
}

TEST(Sample, FewRequestsAreATraceToo) {
  for (std::size_t requests = 0; requests < 60; ++requests) {
    const std::vector<Request> sample = generate_sample({.requests = requests});
    EXPECT_EQ(sample.size(), requests);
    EXPECT_TRUE(check_published_form(sample));
  }
}

}  // namespace
}  // namespace mooncake::workload
