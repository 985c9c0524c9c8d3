// Proves: table and JSON show what was counted, hits and misses make the blocks, percentiles are by
// nearest rank, and a wrong byte can't be overlooked. On a report made by hand.
#include "demo_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace mooncake::demo {
namespace {

Report example() {
  Report report;
  report.trace = "sample";
  report.seed = 1;
  report.requests = 400;
  report.block_bytes = 256 << 10;
  report.segment_bytes = 512 << 20;
  report.seconds = 8;
  report.blocks = 10'000;
  report.hits = 3660;
  report.misses = 6340;
  report.not_stored = 12;
  report.not_stored_by_code = {{-900, 2}, {-200, 10}};
  report.unlimited_hit_ratio = 0.4;
  report.input_tokens = 4'000'000;
  report.tokens_saved = 1'000'000;
  for (std::uint64_t ms = 1; ms <= 100; ++ms)
    report.store_get.add({1'000'000, ms * 1000});
  report.handoff.add({2'000'000'000, 1'000'000});
  report.paths = {{"tcp", {4'000'000'000, "the only one"}}, {"local", {1, ""}}};
  report.evicted_objects = 5;
  report.verified_by_decode = 1'234'567'890;
  report.memory_peak = std::uint64_t{3} << 30;
  return report;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DemoReport, TheTableShowsTheCounts) {
  const std::string table = render_table(example());
  for (const char* part :
       {"400 in 8.0 s, 50.0 a second", "10 000", "3 660", "6 340", "12: 2 for ",
        " (-900), 10 for no space (-200)", "0.366, with unlimited capacity 0.400",
        "1 000 000 of 4 000 000 tokens (25.0 %)", "3.00 GiB at the peak",
        "1 234 567 890 bytes by decode nodes", "every byte is right", "by tcp", "the only one"}) {
    EXPECT_TRUE(has(table, part)) << part << "\n" << table;
  }
}

TEST(DemoReport, TheJsonShowsTheCounts) {
  const auto json = nlohmann::json::parse(render_json(example(), {}));
  EXPECT_EQ(json["blocks"]["hit"], 3660);
  EXPECT_EQ(json["blocks"]["hit"].get<int>() + json["blocks"]["missed"].get<int>(),
            json["blocks"]["total"].get<int>());
  EXPECT_EQ(json["blocks"]["not_stored_by_code"]["-200"], 10);
  EXPECT_DOUBLE_EQ(json["hit_ratio"].get<double>(), 0.366);
  EXPECT_DOUBLE_EQ(json["requests_per_second"].get<double>(), 50);
  EXPECT_DOUBLE_EQ(json["store_get"]["p50_ms"].get<double>(), 50);
  EXPECT_DOUBLE_EQ(json["store_get"]["p99_ms"].get<double>(), 99);
  EXPECT_DOUBLE_EQ(json["handoff"]["gb_per_second"].get<double>(), 2);
  EXPECT_EQ(json["store_put"]["calls"], 0);
  EXPECT_DOUBLE_EQ(json["paths"]["tcp"]["gb_per_second"].get<double>(), 0.5);
  EXPECT_EQ(json["verified"]["wrong_blocks"], 0);
  EXPECT_EQ(json["ok"], true);
}

TEST(DemoReport, PathsAreCompared) {
  EXPECT_EQ(render_comparison({}), "");
  const Comparison comparison{{"shm", example()}, {"tcp", Report()}};
  const std::string table = render_comparison(comparison);
  for (const char* part :
       {"The first 400 requests again", "hand GB/s", "\n  shm ", "8.0", "\n  tcp "})
    EXPECT_TRUE(has(table, part)) << part << "\n" << table;
  const auto json = nlohmann::json::parse(render_json(example(), comparison))["comparison"];
  EXPECT_EQ(json["shm"]["hit"], 3660);
  EXPECT_DOUBLE_EQ(json["shm"]["handoff"]["gb_per_second"].get<double>(), 2);
  EXPECT_EQ(json["tcp"]["requests"], 0);
}

TEST(DemoReport, AWrongByteIsNamed) {
  Report report = example();
  report.wrong_blocks = 1;
  report.wrong.push_back({200, 31, 3, 17, "decode-1", "hand-off"});
  EXPECT_TRUE(has(render_table(report), "1 BLOCKS ARE WRONG"));
  EXPECT_EQ(
      describe(report.wrong.front()),
      "request 200, block 0x1f (position 3): decode-1 found the first wrong byte at offset 17 "
      "after the hand-off");
  const auto json = nlohmann::json::parse(render_json(report, {}));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["verified"]["wrong"][0]["request"], 200);
  EXPECT_EQ(json["verified"]["wrong"][0]["node"], "decode-1");
}

TEST(DemoReport, AnEmptyReportDividesByNothing) {
  const Report report;
  EXPECT_EQ(report.hit_ratio(), 0);
  EXPECT_FALSE(has(render_table(report), "nan"));
  EXPECT_FALSE(has(render_json(report, {}), "null"));
}

TEST(DemoReport, Grouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1 000");
  EXPECT_EQ(grouped(1234567), "1 234 567");
}

}  // namespace
}  // namespace mooncake::demo
