// Proves that limits of control groups of both versions are found, of the group itself and of those
// above.
#include "os/limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mooncake::os {
namespace {

class Limits : public testing::Test {
 protected:
  Limits()
      : root_(std::filesystem::temp_directory_path() /
              ("mooncake-cgroup-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(root_);
  }
  ~Limits() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<double> quota(std::string_view groups) { return cpu_quota(groups, root_.string()); }

  const std::filesystem::path root_;
};

TEST_F(Limits, NothingIsLimited) {
  EXPECT_EQ(quota("0::/\n"), std::nullopt);
  EXPECT_EQ(quota(""), std::nullopt);
  EXPECT_EQ(quota("nonsense\n:\n0:\n"), std::nullopt);
  write("a/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/a\n"), std::nullopt);
}

TEST_F(Limits, TheSmallestOfAllGroupsAboveCounts) {
  write("a/cpu.max", "150000 100000\n");
  write("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota("0::/a/b/c\n"), 1.5);
  EXPECT_EQ(quota("0::/a\n"), 1.5);
  EXPECT_EQ(quota("0::/x\n"), std::nullopt);
  write("cpu.max", "50000 100000\n");
  EXPECT_EQ(quota("0::/a/b/c\n"), 0.5);
}

TEST_F(Limits, Version1) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("5:memory:/job\n4:cpu,cpuacct:/job/inner\n0::/\n"), 2.0);
  EXPECT_EQ(quota("5:cpuacct:/job\n"), std::nullopt);
}

TEST_F(Limits, Memory) {
  write("a/memory.max", "max\n");
  EXPECT_EQ(memory_limit("0::/a\n", root_.string()), std::nullopt);
  write("memory.max", "1048576\n");
  EXPECT_EQ(memory_limit("0::/a\n", root_.string()), 1048576u);
  write("memory/job/memory.limit_in_bytes", "4096000\n");
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit("7:memory:/job\n", root_.string()), 4096000u);
  EXPECT_EQ(memory_limit("7:memory:/other\n", root_.string()), std::nullopt);
}

TEST(UsableLimits, AreNotNothing) {
  EXPECT_GE(usable_processors(), 1u);
  EXPECT_GE(usable_memory(), 4096u);
}

}  // namespace
}  // namespace mooncake::os
