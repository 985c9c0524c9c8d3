// Several processes with engines of their own, forked before this one has threads, which tell each
// other on a page of shared memory how far they are.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mooncake/transfer.h"
#include "os/shared_mapping.h"

namespace mooncake {

using namespace std::chrono_literals;

inline std::unique_ptr<TransferEngine> make(const std::string& name = "127.0.0.1",
                                            const std::string& path = "shm") {
  TransferOptions options;
  options.path = path;
  options.local_name = name;
  auto engine = TransferEngine::create(options);
  EXPECT_TRUE(engine) << engine.error().message();
  return *std::move(engine);
}

// What parent and child tell each other.
struct Board {
  std::atomic<std::uint16_t> port;
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint64_t> copies;
  std::atomic<std::int32_t> last_code;
  std::atomic<std::uint32_t> asked, answered;  // steps that the child takes when it is told to
  std::atomic<bool> over;
};

// The number in a row of an engine's metrics; -1 when there is no such row.
inline double metric(TransferEngine& engine, const std::string& row) {
  const std::string text = "\n" + engine.metrics();
  const std::size_t at = text.find("\n" + row + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + row.size() + 2));
}

class ShmProcesses : public testing::Test {
 protected:
  ShmProcesses() {
    auto memory =
        os::OwnedMapping::create("board", sizeof(Board), os::OwnedMapping::PeersMay::kWrite);
    EXPECT_TRUE(memory);
    memory_ = *std::move(memory);
  }
  ~ShmProcesses() override { end_child(SIGKILL); }

  // Of the parent; the child maps it anew, since mappings of ours are left out of forks.
  Board& board() { return *reinterpret_cast<Board*>(memory_.data()); }

  // Forks before any engine exists in this process.
  void start_child(const std::function<void(Board&)>& work) {
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    auto mapped =
        os::SharedMapping::map(memory_.fd(), memory_.size(), os::SharedMapping::Use::kReadWrite);
    if (!mapped) ::_exit(3);
    work(*reinterpret_cast<Board*>(mapped->data()));
    ::_exit(0);
  }
  void end_child(int signal) {
    if (child_ <= 0) return;
    ::kill(child_, signal);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  template <typename Condition>
  static bool comes_true(Condition condition, std::chrono::seconds limit = 20s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  pid_t child_ = 0;
  os::OwnedMapping memory_;
};

inline TransferRequest request(Opcode opcode, void* source, SegmentHandle target,
                               std::uint64_t there, std::uint64_t length) {
  TransferRequest made;
  made.opcode = opcode;
  made.source = source;
  made.target = target;
  made.target_offset = there;
  made.length = length;
  return made;
}

// A child that owns `size` bytes, `mapped` or of its own, all 'o', until it is told to end.
inline std::function<void(Board&)> owner(std::size_t size, bool mapped) {
  return [size, mapped](Board& board) {
    const auto engine = make();
    std::vector<char> own;
    char* memory = nullptr;
    if (mapped) {
      memory = static_cast<char*>(engine->allocate_memory(size).value_or(nullptr));
    } else {
      own.resize(size);
      memory = own.data();
      if (!engine->register_memory(memory, size)) ::_exit(4);
    }
    std::memset(memory, 'o', size);
    board.address = reinterpret_cast<std::uint64_t>(memory);
    board.port = engine->port();
    while (!board.over)
      std::this_thread::yield();
  };
}

}  // namespace mooncake
