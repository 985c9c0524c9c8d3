// Files: lines are found whatever the buffer's borders, errors name file and line, limits hold,
// what is written is read back; and each promise of the published form is checked by one broken
// trace.
#include "workload/trace.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace mooncake::workload {
namespace {

class TraceFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = (std::filesystem::path(testing::TempDir()) /
             ("trace_" + std::string(test->name()) + ".jsonl"))
                .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  void write(std::string_view text) { std::ofstream(path_, std::ios::binary) << text; }

  std::string error(const TraceLimits& limits = {}) {
    const auto requests = read_trace(path_, SIZE_MAX, limits);
    return requests ? "none" : std::string(requests.error().detail());
  }

  std::string path_;
};

Request request(std::uint64_t timestamp_ms, std::vector<std::uint64_t> ids) {
  const std::uint64_t input = ids.size() * kBlockTokens - 12;
  return {timestamp_ms, input, 5, std::move(ids)};
}

constexpr char kGood[] =
    "{\"timestamp\": 3000, \"input_length\": 500, \"output_length\": 5, \"hash_ids\": [0]}\n";

TEST(BlockTokens, AreFewerInTheLastBlock) {
  EXPECT_EQ(block_tokens(1025, 0), 512u);
  EXPECT_EQ(block_tokens(1025, 1), 512u);
  EXPECT_EQ(block_tokens(1025, 2), 1u);
  EXPECT_EQ(block_tokens(1025, 3), 0u);
  EXPECT_EQ(block_tokens(1024, 2), 0u);
}

TEST_F(TraceFile, LinesHaveThePublishedForm) {
  std::string line;
  append_line({0, 6758, 500, {0, 1, 2}}, line);
  EXPECT_EQ(line,
            "{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, "
            "\"hash_ids\": [0, 1, 2]}\n");
}

TEST_F(TraceFile, IsReadBackAcrossBufferBorders) {
  // 3 MB of lines from 100 bytes to 100 kB, so that they end everywhere in the 256 KiB buffer.
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 180; ++i) {
    std::vector<std::uint64_t> ids(1 + i * i % 7 * 2'003);
    for (std::uint64_t& id : ids) {
      id = i * 1'000'000'007;
    }
    requests.push_back(request(i, std::move(ids)));
  }
  ASSERT_TRUE(write_trace(path_, requests));
  ASSERT_GT(std::filesystem::file_size(path_), std::uintmax_t{3'000'000});
  const auto read = read_trace(path_);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, requests);
}

TEST_F(TraceFile, TheLastLineMayLackItsFeed) {
  write(std::string(kGood) + std::string(kGood).substr(0, sizeof(kGood) - 2));
  EXPECT_EQ(read_trace(path_)->size(), 2u);
}

TEST_F(TraceFile, AnEmptyFileIsAnEmptyTrace) {
  write("");
  EXPECT_TRUE(read_trace(path_)->empty());
}

TEST_F(TraceFile, ReadingStopsAtTheWantedNumber) {
  write(std::string(kGood) + "not looked at\n");
  EXPECT_EQ(read_trace(path_, 1)->size(), 1u);
  EXPECT_TRUE(read_trace(path_, 0)->empty());
}

TEST_F(TraceFile, ErrorsNameFileLineFieldAndValue) {
  write(std::string(kGood) +
        "{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n");
  EXPECT_EQ(error(), path_ +
                         ":2: field timestamp: must be a whole number from 0 to "
                         "18446744073709551615, is '-1'");
}

TEST_F(TraceFile, AnEmptyLineIsAnError) {
  write(std::string(kGood) + "\n" + kGood);
  EXPECT_EQ(error(), path_ + ":2: column 1: expected '{', found the end of the line");
}

TEST_F(TraceFile, TimeNeverRunsBackwards) {
  write(std::string(kGood) +
        "{\"timestamp\": 2999, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n");
  EXPECT_EQ(error(), path_ + ":2: field timestamp: is 2999, less than the line before with 3000");
}

TEST_F(TraceFile, LongLinesAreRefusedWithoutReadingThemWhole) {
  const std::size_t length = sizeof(kGood) - 2;
  write(kGood);
  EXPECT_EQ(error({.line_bytes = length}), "none");
  EXPECT_EQ(error({.line_bytes = length - 1}), path_ + ":1: line is longer than the limit of " +
                                                   std::to_string(length - 1) + " bytes");
  write(std::string(1 << 22, ' '));
  EXPECT_EQ(error({.line_bytes = 1 << 20}),
            path_ + ":1: line is longer than the limit of 1048576 bytes");
}

TEST_F(TraceFile, AReaderThatFailedIsAtItsEnd) {
  write(std::string("x\n") + kGood);
  const auto reader = TraceReader::open(path_);
  ASSERT_TRUE(reader);
  EXPECT_FALSE((*reader)->next());
  const auto after = (*reader)->next();
  ASSERT_TRUE(after);
  EXPECT_EQ(*after, std::nullopt);
  EXPECT_EQ((*reader)->lines_read(), 1u);
}

TEST_F(TraceFile, FilesThatCannotBeOpenedAreNamed) {
  const std::string missing = path_ + ".d/missing";
  for (const Error& failed : {read_trace(missing).error(), write_trace(missing, {}).error(),
                              read_trace(testing::TempDir()).error()}) {
    EXPECT_NE(failed.detail().find(testing::TempDir()), std::string_view::npos) << failed.message();
  }
}

TEST_F(TraceFile, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "SKIPPED, NOT PROVEN: this system has no /dev/full";
  }
  const std::vector<Request> requests(10, request(0, {0}));
  const auto written = write_trace("/dev/full", requests);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Code::kSystemCall);
}

std::string form_error(const std::vector<Request>& requests) {
  const auto checked = check_published_form(requests);
  return checked ? "none" : std::string(checked.error().detail());
}

TEST(PublishedForm, IsChecked) {
  EXPECT_EQ(form_error({}), "none");
  EXPECT_EQ(form_error({request(0, {0, 1}), request(0, {0, 2}), request(5, {0, 1, 3})}), "none");
  EXPECT_EQ(form_error({request(1, {0}), request(0, {0})}),
            "request 1: timestamp 0 is less than the one before");
  EXPECT_EQ(form_error({request(0, {1})}), "request 0: hash id 1 appears before id 0");
  EXPECT_EQ(form_error({request(0, {0, 0})}),
            "request 0: hash id 0 comes behind another prefix than before");
  EXPECT_EQ(form_error({request(0, {0, 1}), request(0, {1})}),
            "request 1: hash id 1 comes behind another prefix than before");
  EXPECT_EQ(form_error({{0, 513, 1, {0}}}),
            "request 0: has 1 hash_ids, its input_length asks for 2");
}

}  // namespace
}  // namespace mooncake::workload
