// Proves: wrong options are refused with option, value and what is allowed; requests come from the
// sample or a file, and a trace whose ids are no prefixes is refused. By tables and small files.
#include "demo_options.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "workload/sample.h"

namespace mooncake::demo {
namespace {

class TraceFile {
 public:
  explicit TraceFile(const std::string& text)
      : path_(testing::TempDir() + "/demo_options_test.jsonl") {
    std::ofstream(path_) << text;
  }
  ~TraceFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(DemoOptions, Defaults) {
  const auto options = parse_options({});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->trace, "sample");
  EXPECT_EQ(options->requests, 0u);
  EXPECT_EQ(options->block_bytes, 256u << 10);
  EXPECT_EQ(options->segment_bytes, 512u << 20);
  EXPECT_EQ(options->replicas, 1u);
  EXPECT_EQ(options->compare, kComparedRequests);
  EXPECT_FALSE(options->json);
  EXPECT_FALSE(options->inject_corruption);
}

TEST(DemoOptions, PathsAreComparedForTheSampleOrWhenAskedTo) {
  EXPECT_EQ(parse_options({{"trace", "some.jsonl"}})->compare, 0u);
  EXPECT_EQ(parse_options({{"path", "tcp"}})->compare, 0u);
  EXPECT_EQ(parse_options({{"compare", "off"}})->compare, 0u);
  EXPECT_EQ(parse_options({{"trace", "some.jsonl"}, {"compare", "on"}})->compare,
            kComparedRequests);
}

TEST(DemoOptions, ErrorsNameOptionValueAndWhatIsAllowed) {
  const struct {
    const char* name;
    const char* value;
    const char* words;
  } cases[] = {
      {"requests", "-1", "requests: '-1' is not in 0..1000000"},
      {"requests", "many", "requests: 'many' is not an integer in 0..1000000"},
      {"block-bytes", "0", "block-bytes: '0' is not in 64 B..1 GiB"},
      {"block-bytes", "12 parsecs", "block-bytes: '12 parsecs' is not a size"},
      {"segment-size", "50%", "segment-size: '50%' is not a size"},
      {"segment-size", "1kb", "segment-size: '1kb' is not in 1 MiB..1 TiB"},
      {"replicas", "5", "replicas: '5' is not in 1..4"},
      {"seed", "-3", "seed: '-3' is not in 0 or more"},
      {"trace", "", "trace: ''"},
      {"block-bytes", "1GiB", "block-bytes: a block of 1073741824 bytes has no room in a segment"},
  };
  for (const auto& one : cases) {
    const auto options = parse_options({{one.name, one.value}});
    ASSERT_FALSE(options) << one.words;
    EXPECT_EQ(options.error().detail().find(one.words), 0u) << options.error().detail();
  }
}

TEST(DemoOptions, TheSampleIsAsLongAsAskedFor) {
  DemoOptions options;
  options.trace = "sample";
  options.seed = 3;
  auto requests = load_requests(options);
  ASSERT_TRUE(requests);
  EXPECT_EQ(requests->size(), workload::kDefaultSampleRequests);
  EXPECT_TRUE(check_replayable(*requests));
  options.requests = 17;
  requests = load_requests(options);
  ASSERT_TRUE(requests);
  EXPECT_EQ(requests->size(), 17u);
}

TEST(DemoOptions, AFileIsReadAsFarAsAskedFor) {
  const TraceFile file(
      "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [0, 1]}\n"
      "{\"timestamp\": 1, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [0, 2]}\n"
      "not read\n");
  DemoOptions options;
  options.trace = file.path();
  options.requests = 2;
  const auto requests = load_requests(options);
  ASSERT_TRUE(requests) << requests.error().message();
  EXPECT_EQ(requests->size(), 2u);
  options.requests = 0;
  const auto whole = load_requests(options);
  ASSERT_FALSE(whole);
  EXPECT_NE(whole.error().detail().find(file.path() + ":3"), std::string::npos)
      << whole.error().detail();
}

TEST(DemoOptions, AMissingOrEmptyFileIsNamed) {
  DemoOptions options;
  options.trace = "/nonexistent/trace.jsonl";
  auto requests = load_requests(options);
  ASSERT_FALSE(requests);
  EXPECT_EQ(requests.error().detail().find("trace: "), 0u) << requests.error().detail();
  EXPECT_NE(requests.error().detail().find("/nonexistent/trace.jsonl"), std::string::npos);
  const TraceFile empty("");
  options.trace = empty.path();
  requests = load_requests(options);
  ASSERT_FALSE(requests);
  EXPECT_NE(requests.error().detail().find("holds no request"), std::string::npos);
}

TEST(DemoOptions, IdsThatAreNoPrefixesAreRefused) {
  std::vector<workload::Request> requests(2);
  requests[0].hash_ids = {0, 1};
  requests[1].hash_ids = {0, 1, 2};
  EXPECT_TRUE(check_replayable(requests));
  requests[1].hash_ids = {1, 0};
  const auto moved = check_replayable(requests);
  ASSERT_FALSE(moved);
  EXPECT_NE(moved.error().detail().find("request 1: block id 1"), std::string::npos)
      << moved.error().detail();
  requests[1].hash_ids = {0, 3, 3};
  EXPECT_FALSE(check_replayable(requests));
}

}  // namespace
}  // namespace mooncake::demo
