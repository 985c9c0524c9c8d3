// Proves: a file is replaced as a whole or not at all, errors say what failed on which path,
// nothing is left beside the file, and the fake disk behaves like the real one plus its armed
// faults: both run the same suite.
#include "os/disk.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "base/random.h"

namespace mooncake::os {
namespace {

namespace fs = std::filesystem;

// Both disks, each with a folder of its own.
class AnyDisk : public testing::TestWithParam<bool> {
 protected:
  AnyDisk() {
    if (GetParam()) fs::create_directories(folder_);
  }
  ~AnyDisk() override { fs::remove_all(folder_); }

  Disk& disk() { return GetParam() ? system_disk() : fake_; }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const fs::path folder_ =
      fs::temp_directory_path() / ("mooncake_disk_" + std::to_string(base::secure_random()));
  FakeDisk fake_;
};

TEST_P(AnyDisk, WhatWasWrittenIsRead) {
  const std::string binary("a\0b\xff\n", 5);
  ASSERT_TRUE(disk().write_atomically(path("epoch"), binary));
  EXPECT_EQ(disk().read(path("epoch")).value(), binary);
  ASSERT_TRUE(disk().write_atomically(path("epoch"), ""));
  EXPECT_EQ(disk().read(path("epoch")).value(), "");
  const std::string large(1 << 20, 'x');
  ASSERT_TRUE(disk().write_atomically(path("epoch"), large));
  EXPECT_EQ(disk().read(path("epoch")).value(), large);
}

TEST_P(AnyDisk, AMissingFileIsNotFound) {
  const auto content = disk().read(path("none"));
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code(), Code::kObjectNotFound);
  EXPECT_EQ(content.error().detail(), "open '" + path("none") + "': No such file or directory");
}

TEST_P(AnyDisk, AFileHasALimit) {
  const auto written = disk().write_atomically(path("f"), std::string(Disk::kMaxFile + 1, 'x'));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(disk().read(path("f")));
}

TEST_P(AnyDisk, ConcurrentWritersLeaveOneWholeContent) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      const std::string content(20'000, static_cast<char>('a' + i));
      for (int n = 0; n < 5; ++n) {
        EXPECT_TRUE(disk().write_atomically(path("shared"), content));
        const auto seen = disk().read(path("shared"));
        ASSERT_TRUE(seen);
        ASSERT_EQ(*seen, std::string(20'000, seen->at(0)));
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
}

INSTANTIATE_TEST_SUITE_P(Disks, AnyDisk, testing::Bool(),
                         [](const auto& test) { return test.param ? "System" : "Fake"; });

class SystemDiskTest : public AnyDisk {};
INSTANTIATE_TEST_SUITE_P(Disks, SystemDiskTest, testing::Values(true));

TEST_P(SystemDiskTest, NothingIsLeftBesideTheFile) {
  ASSERT_TRUE(disk().write_atomically(path("f"), "1"));
  ASSERT_TRUE(disk().write_atomically(path("f"), "2"));
  fs::create_directory(path("folder"));
  EXPECT_FALSE(disk().write_atomically(path("folder"), "can't replace a folder"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_P(SystemDiskTest, ErrorsNameThePath) {
  const auto written = disk().write_atomically(path("none/f"), "x");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Code::kSystemCall);
  EXPECT_NE(written.error().detail().find("none/f"), std::string::npos);
  EXPECT_NE(written.error().detail().find("No such file"), std::string::npos);
  const auto folder = disk().read(folder_.string());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().detail(), "read '" + folder_.string() + "': not a regular file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(disk().read(path("pipe"))) << "and does not wait for a writer";
}

TEST_P(SystemDiskTest, APathWithoutAFolderIsInTheWorkingFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const bool written = disk().write_atomically("here", "x").has_value();
  fs::current_path(before);
  EXPECT_TRUE(written);
  EXPECT_EQ(disk().read(path("here")).value(), "x");
}

TEST(FakeDiskFaults, BeforeKeepsTheOldAndAfterHasTheNew) {
  FakeDisk disk;
  ASSERT_TRUE(disk.write_atomically("f", "old"));
  disk.fail_next_write(FakeDisk::Fault::kBeforeReplace);
  EXPECT_EQ(disk.write_atomically("f", "new").error().code(), Code::kSystemCall);
  EXPECT_EQ(disk.read("f").value(), "old");
  disk.fail_next_write(FakeDisk::Fault::kAfterReplace);
  EXPECT_FALSE(disk.write_atomically("f", "new"));
  EXPECT_EQ(disk.read("f").value(), "new");
  EXPECT_TRUE(disk.write_atomically("f", "newer")) << "a fault strikes once";
}

}  // namespace
}  // namespace mooncake::os
