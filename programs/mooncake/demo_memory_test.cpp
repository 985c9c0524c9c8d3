// Proves: the defaults need at most 4 GiB, larger requests go in windows, what doesn't fit is
// refused with the option to lower, and a control group's limit counts. With made-up /proc and /sys
// trees.
#include "demo_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mooncake::demo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1 << 20;

TEST(DemoMemory, TheDefaultsNeedAtMostFourGibibytes) {
  const auto options = parse_options({});
  ASSERT_TRUE(options);
  const auto requests = load_requests(*options);
  ASSERT_TRUE(requests);
  const MemoryPlan plan = plan_memory(*options, *requests);
  EXPECT_LE(plan.total, 4096 * kMiB);
  EXPECT_EQ(plan.segments_total, 5 * 512 * kMiB);
  // All blocks find room below the Master's watermark for eviction.
  std::uint64_t last = 0;
  for (const auto& request : *requests) {
    for (std::uint64_t id : request.hash_ids)
      last = std::max(last, id);
  }
  EXPECT_LT((last + 1) * options->block_bytes, plan.segments_total * 8 / 10);
}

TEST(DemoMemory, LargeRequestsGoInWindows) {
  DemoOptions options;
  options.block_bytes = kMiB;
  options.segment_bytes = kMiB;
  std::vector<workload::Request> requests(2);
  requests[0].hash_ids.resize(10);
  EXPECT_EQ(plan_memory(options, requests).slot_blocks, 10u);
  requests[1].hash_ids.resize(1000);
  EXPECT_EQ(plan_memory(options, requests).slot_blocks, 64u);
  options.block_bytes = 100 * kMiB;
  EXPECT_EQ(plan_memory(options, requests).slot_blocks, 1u);
  EXPECT_EQ(plan_memory(options, requests).buffers_total, 6 * 100 * kMiB);
}

TEST(DemoMemory, WhatDoesNotFitIsRefused) {
  DemoOptions options;
  options.block_bytes = 256 << 10;
  options.segment_bytes = 1024 * kMiB;
  const MemoryPlan plan = plan_memory(options, std::vector<workload::Request>(1));
  EXPECT_TRUE(check_fits(plan, options, plan.total));
  const auto refused = check_fits(plan, options, plan.total - 1);
  ASSERT_FALSE(refused);
  for (const char* words : {"segment-size: 1 GiB", "5 nodes", "--block-bytes", "are free"}) {
    EXPECT_NE(refused.error().detail().find(words), std::string::npos) << refused.error().detail();
  }
}

// Trees of files that look like /proc and /sys/fs/cgroup.
class AvailableMemory : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/demo_memory_test";
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal:       8000 kB\nMemAvailable:   4000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(root_) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::uint64_t available() {
    const auto bytes = available_memory(root_ + "/proc", root_ + "/cgroup");
    EXPECT_TRUE(bytes);
    return bytes.value_or(0);
  }

  std::string root_;
};

TEST_F(AvailableMemory, OfTheMachine) { EXPECT_EQ(available(), 4000u * 1024); }

TEST_F(AvailableMemory, OfTheControlGroupsAbove) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(available(), 4000u * 1024);
  write("cgroup/a/memory.max", "500000\n");
  write("cgroup/a/memory.current", "300000\n");
  EXPECT_EQ(available(), 200'000u);
  write("cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n");
  EXPECT_EQ(available(), 300'000u);
  write("cgroup/memory.max", "1000\n");
  write("cgroup/memory.current", "5000\n");
  EXPECT_EQ(available(), 0u);
}

TEST_F(AvailableMemory, OfAControlGroupOfVersionOne) {
  write("proc/self/cgroup", "5:cpu:/x\n4:memory:/box\n");
  write("cgroup/memory/box/memory.limit_in_bytes", "5000\n");
  write("cgroup/memory/box/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(available(), 4000u);
}

TEST_F(AvailableMemory, NotKnown) {
  write("proc/meminfo", "MemTotal: 8000 kB\n");
  EXPECT_FALSE(available_memory(root_ + "/proc", root_ + "/cgroup"));
}

TEST(DemoMemory, OfThisProcess) { EXPECT_GT(memory_of(::getpid()), kMiB); }

}  // namespace
}  // namespace mooncake::demo
