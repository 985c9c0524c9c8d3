// On the published traces themselves: the numbers that their authors and our documents state come
// out exactly, and writing gives the files back byte for byte. The traces are not a part of this
// repository: MOONCAKE_TRACES names their folder, else ../shared/traces beside the repository.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "workload/trace.h"
#include "workload/trace_stats.h"

namespace mooncake::workload {
namespace {

std::string trace_path(const std::string& name) {
  const char* set = std::getenv("MOONCAKE_TRACES");
  const std::filesystem::path folder =
      set != nullptr ? set : MOONCAKE_SOURCE_DIR "/../shared/traces";
  return (folder / name).lexically_normal().string();
}

class PublishedTrace : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = trace_path(GetParam());
    if (!std::filesystem::exists(path_)) {
      GTEST_SKIP() << "SKIPPED, NOT PROVEN: there is no " << path_ << ". Fetch the traces of "
                   << "Mooncake's FAST'25 release and set MOONCAKE_TRACES to their folder.";
    }
    const auto begin = std::chrono::steady_clock::now();
    auto requests = read_trace(path_);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(requests) << requests.error().message();
    requests_ = std::move(*requests);
    std::printf("%s: %zu requests read in %.1f ms\n", GetParam().c_str(), requests_.size(),
                took.count());
  }

  std::string path_;
  std::vector<Request> requests_;
};

TEST_P(PublishedTrace, HasThePublishedForm) {
  const Result<void> checked = check_published_form(requests_);
  EXPECT_TRUE(checked) << checked.error().message();
}

TEST_P(PublishedTrace, IsWrittenBackByteForByte) {
  std::ifstream file(path_, std::ios::binary);
  std::string original((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!original.ends_with('\n')) {
    original += '\n';
  }
  std::string text;
  for (const Request& request : requests_) {
    append_line(request, text);
  }
  EXPECT_TRUE(text == original);
}

TEST_P(PublishedTrace, HasTheStatedNumbers) {
  const TraceStats stats = trace_stats(requests_);
  std::printf("%s: blocks per request p50 %ju p90 %ju p99 %ju max %ju, hit ratio %.4f\n",
              GetParam().c_str(), std::uintmax_t{stats.blocks_per_request.p50},
              std::uintmax_t{stats.blocks_per_request.p90},
              std::uintmax_t{stats.blocks_per_request.p99},
              std::uintmax_t{stats.blocks_per_request.max}, stats.hit_ratio());
  if (GetParam() == "conversation_trace.jsonl") {
    EXPECT_EQ(stats.requests, 12'031u);
    EXPECT_EQ(stats.duration_ms, 3'536'999u);
    EXPECT_EQ(stats.blocks, 288'500u);
    EXPECT_EQ(stats.unique_blocks, 182'790u);
    EXPECT_EQ(stats.hit_blocks, 105'710u);
    EXPECT_NEAR(stats.hit_ratio(), 0.3664, 0.00005);
    EXPECT_EQ(stats.blocks_per_request,
              (Percentiles{.p50 = 14, .p90 = 54, .p99 = 167, .max = 247}));
    EXPECT_EQ(stats.input_length,
              (Percentiles{.p50 = 6'909, .p90 = 27'367, .p99 = 85'401, .max = 126'195}));
    EXPECT_NEAR(static_cast<double>(stats.hit_tokens) / static_cast<double>(stats.input_tokens),
                0.374, 0.0005);
  } else {
    EXPECT_EQ(stats.requests, 3'993u);
    EXPECT_EQ(stats.blocks, 121'877u);
    EXPECT_EQ(stats.unique_blocks, 43'924u);
    EXPECT_NEAR(stats.hit_ratio(), 0.640, 0.0005);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PublishedTrace,
                         testing::Values("conversation_trace.jsonl", "synthetic_trace.jsonl"),
                         [](const auto& test) {
                           return test.param.substr(0, test.param.find('_'));
                         });

}  // namespace
}  // namespace mooncake::workload
