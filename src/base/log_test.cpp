// Proves: a line reaches stderr in one write, whole, without control characters and bounded, and
// levels below the set one cost no formatting. stderr is a packet pipe here: one read returns one
// write.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace mooncake::base {
namespace {

// Takes stderr over for its lifetime.
class Captured {
 public:
  Captured() {
    EXPECT_EQ(::pipe2(pipe_, O_DIRECT | O_CLOEXEC | O_NONBLOCK), 0);
    saved_ = ::dup(STDERR_FILENO);
    ::dup2(pipe_[1], STDERR_FILENO);
  }
  ~Captured() {
    ::dup2(saved_, STDERR_FILENO);
    for (const int fd : {saved_, pipe_[0], pipe_[1]})
      ::close(fd);
  }
  // What one write left; empty when there is none.
  std::string packet() {
    char buffer[16384];
    const ssize_t got = ::read(pipe_[0], buffer, sizeof buffer);
    return got > 0 ? std::string(buffer, static_cast<std::size_t>(got)) : std::string();
  }

 private:
  int pipe_[2];
  int saved_;
};

class Log : public testing::Test {
 protected:
  ~Log() override { set_log_level(LogLevel::kWarning); }
};

TEST_F(Log, OneLineIsOneWrite) {
  Captured captured;
  log_error("key {} is gone", "a/b");
  const std::string line = captured.packet();
  EXPECT_NE(line.find(" E "), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with(" key a/b is gone\n")) << line;
  EXPECT_EQ(captured.packet(), "");
}

TEST_F(Log, HostileTextStaysOneBoundedLine) {
  Captured captured;
  log_error("key {}", "x\n2026-01-01 forged \x1b[31m");
  std::string line = captured.packet();
  EXPECT_TRUE(line.ends_with("key x\\n2026-01-01 forged \\x1b[31m\n")) << line;
  write_log(LogLevel::kError, std::string(1 << 20, '\x01'));
  line = captured.packet();
  EXPECT_LE(line.size(), 4096u);
  EXPECT_TRUE(line.ends_with("...\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  write_log(LogLevel::kError, "peer \xFF\xFE h\xC3\xB6st");
  line = captured.packet();
  EXPECT_TRUE(line.ends_with("peer \\xff\\xfe h\xC3\xB6st\n")) << line;
  EXPECT_EQ(captured.packet(), "");
}

TEST_F(Log, LevelsBelowAreSilent) {
  Captured captured;
  EXPECT_EQ(log_level(), LogLevel::kWarning);
  log_info("quiet");
  EXPECT_EQ(captured.packet(), "");
  set_log_level(LogLevel::kInfo);
  log_info("said");
  EXPECT_NE(captured.packet().find(" I "), std::string::npos);
  set_log_level(LogLevel::kOff);
  log_error("nothing");
  write_log(LogLevel::kOff, "nothing");
  EXPECT_EQ(captured.packet(), "");
}

TEST_F(Log, ThreadsDoNotMixTheirLines) {
  Captured captured;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([i] {
      for (int n = 0; n < 4; ++n)
        log_warning("{}", std::string(200, static_cast<char>('a' + i)));
    });
  }
  for (auto& thread : threads)
    thread.join();
  for (int n = 0; n < 12; ++n) {
    const std::string line = captured.packet();
    const char letter = line[line.size() - 2];
    ASSERT_TRUE(line.ends_with(" " + std::string(200, letter) + "\n")) << line;
  }
  EXPECT_EQ(captured.packet(), "");
}

}  // namespace
}  // namespace mooncake::base
