// Proves copies of a peer's pages that are not there: such that come at once, late or never, as
// those of a file on a server that is gone. Each call ends by its deadline, touches nothing
// afterwards, and holds up no other.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "shm_processes.h"

namespace mooncake {
namespace {

constexpr std::size_t kSize = 1u << 20;
constexpr std::size_t kPage = 4096;

// Memory whose pages come when this says so.
class HeldPages {
 public:
  explicit HeldPages(char* memory) : memory_(memory) {
    fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register range{};
    range.range = {reinterpret_cast<std::uint64_t>(memory), kSize};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    held_ = fd_ >= 0 && ::ioctl(fd_, UFFDIO_API, &api) == 0 &&
            ::ioctl(fd_, UFFDIO_REGISTER, &range) == 0;
  }
  bool held() const { return held_; }
  void bring(char content) {
    const std::vector<char> page(kPage, content);
    for (std::size_t at = 0; at < kSize; at += kPage) {
      uffdio_copy copy{};
      copy.dst = reinterpret_cast<std::uint64_t>(memory_) + at;
      copy.src = reinterpret_cast<std::uint64_t>(page.data());
      copy.len = kPage;
      static_cast<void>(::ioctl(fd_, UFFDIO_COPY, &copy));  // what is there stays
    }
  }

 private:
  char* const memory_;
  int fd_ = -1;
  bool held_ = false;
};

enum Step : std::uint32_t { kBring, kTakeBack, kFill, kSteps };

// A child with three buffers, one after the other: pages that are held, pages that nobody has
// touched, and pages that are there.
void lend(Board& board) {
  const auto engine = make();
  auto* const held = static_cast<char*>(
      ::mmap(nullptr, 3 * kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::madvise(held, 3 * kSize, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < 3; ++i) {
    if (!engine->register_memory(held + i * kSize, kSize)) ::_exit(4);
  }
  ::madvise(held, 2 * kSize, MADV_DONTNEED);
  std::memset(held + 2 * kSize, 'g', kSize);
  HeldPages pages(held);
  board.last_code = pages.held() ? 1 : 2;
  board.address = reinterpret_cast<std::uint64_t>(held);
  board.port = engine->port();
  for (std::uint32_t done = 0; !board.over;) {
    if (board.asked == done) {
      std::this_thread::yield();
      continue;
    }
    done = board.asked;
    const std::uint32_t step = done % kSteps;
    if (step == kBring) {
      pages.bring('p');
      board.last_code = 0;
    } else if (step == kTakeBack) {
      const Result<void> taken = engine->unregister_memory(held, 50ms);
      board.last_code = static_cast<std::int32_t>(taken ? Code::kOk : taken.error().code());
    } else {
      board.last_code = std::count(held, held + kSize, 'x') == 0 ? 0 : 1;
      std::memset(held, 'f', kSize);
    }
    board.answered = done;
  }
}

class AbsentPages : public ShmProcesses {
 protected:
  void SetUp() override {
    start_child(lend);
    ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
    if (board().last_code == 2)
      GTEST_SKIP() << "SKIPPED, NOT PROVEN: userfaultfd is not allowed here";
    engine_ = make();
    ASSERT_TRUE(engine_->register_memory(mine_.data(), kSize));
    const auto target = engine_->open_segment("127.0.0.1:" + std::to_string(board().port));
    ASSERT_TRUE(target) << target.error().message();
    target_ = *target;
  }
  // What was left ends with the peer, and takes its threads with it: the next test may fork.
  void TearDown() override {
    end_child(SIGKILL);
    engine_.reset();
    EXPECT_TRUE(comes_true([] { return threads_for_copies() == 0; }));
  }
  static std::size_t threads_for_copies() {
    std::size_t count = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream name(thread.path() / "comm");
      std::string text;
      count += std::getline(name, text) && text == "mc-vm-copy" ? 1 : 0;
    }
    return count;
  }
  std::uint64_t held() { return board().address; }
  std::uint64_t untouched() { return board().address + kSize; }
  std::uint64_t there() { return board().address + 2 * kSize; }

  TransferOutcome transfer(Opcode opcode, std::uint64_t address, std::chrono::milliseconds limit) {
    return transfer(opcode, address, kSize, limit);
  }
  TransferOutcome transfer(Opcode opcode, std::uint64_t address, std::uint64_t size,
                           std::chrono::milliseconds limit) {
    const TransferRequest one = request(opcode, mine_.data(), target_, address, size);
    return engine_->transfer({&one, 1}, limit);
  }
  bool is_all(char content) { return std::count(mine_.begin(), mine_.end(), content) == kSize; }
  std::int32_t ask(Step step) {
    const std::uint32_t number = (board().asked / kSteps + 1) * kSteps + step;
    board().asked = number;
    EXPECT_TRUE(comes_true([&] { return board().answered == number; }));
    return board().last_code;
  }

  std::unique_ptr<TransferEngine> engine_;
  SegmentHandle target_{};
  std::vector<char> mine_ = std::vector<char>(kSize, 'm');
};

TEST_F(AbsentPages, AreWaitedForWhileTheCallMayLast) {
  for (const bool known : {false, true}) {
    const TransferOutcome written = transfer(Opcode::kWrite, untouched(), 10s);
    ASSERT_TRUE(written.ok()) << written.status.error().message();
    EXPECT_EQ(written.bytes_by_path.at("process_vm"), kSize) << known;
  }
  std::fill(mine_.begin(), mine_.end(), 'b');
  ASSERT_TRUE(transfer(Opcode::kRead, untouched(), 10s).ok());
  EXPECT_TRUE(is_all('m'));
}

// Thousands of pieces, on and off the pages that are there.
TEST_F(AbsentPages, StandBesideThoseThatAreThere) {
  for (std::size_t i = 0; i < kSize; ++i)
    mine_[i] = static_cast<char>(i * 31 >> 4);
  const std::vector<char> sent = mine_;
  for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
    std::vector<TransferRequest> requests;
    const std::size_t piece = 1789;
    for (std::size_t at = 0; at < kSize; at += piece) {
      requests.push_back(request(opcode, mine_.data() + at, target_, there() - kSize / 2 + at,
                                 std::min(piece, kSize - at)));
    }
    // What lies across the border of two regions is in neither.
    std::erase_if(requests, [this](const TransferRequest& each) {
      return each.target_offset < there() && each.target_offset + each.length > there();
    });
    const TransferOutcome outcome = engine_->transfer(requests, 10s);
    ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
    if (opcode == Opcode::kWrite) {
      for (const TransferRequest& each : requests)
        std::memset(static_cast<char*>(each.source), 0, each.length);
    }
  }
  EXPECT_EQ(mine_, sent);
}

TEST_F(AbsentPages, AReadEndsByItsDeadlineAndTouchesNothingLater) {
  for (const bool known : {false, true}) {
    const TransferOutcome outcome = transfer(Opcode::kRead, held(), 100ms);
    EXPECT_FALSE(outcome.ok()) << known;
    EXPECT_EQ(outcome.status.error().code(), Code::kDeadlineExceeded);
  }
  EXPECT_EQ(ask(kBring), 0);
  EXPECT_TRUE(is_all('m'));
  EXPECT_TRUE(transfer(Opcode::kRead, held(), 10s).ok());
  EXPECT_TRUE(is_all('p'));
}

// The buffer is the caller's again, and what he writes there must not arrive; the owner must not be
// told that the memory is his alone until the kernel has let go of it.
TEST_F(AbsentPages, AWriteThatWasLeftKeepsItsPlaceUntilItHasEnded) {
  EXPECT_FALSE(transfer(Opcode::kWrite, held(), 100ms).ok());
  std::fill(mine_.begin(), mine_.end(), 'x');
  EXPECT_EQ(ask(kTakeBack), static_cast<std::int32_t>(Code::kBusy));
  EXPECT_EQ(metric(*engine_, "mooncake_engine_quarantined_bytes"), kSize);
  EXPECT_EQ(ask(kBring), 0);
  ASSERT_TRUE(
      comes_true([&] { return metric(*engine_, "mooncake_engine_quarantined_bytes") == 0; }));
  EXPECT_EQ(ask(kTakeBack), 0);
  EXPECT_EQ(ask(kFill), 0) << "bytes of a buffer that was in use again";
}

// A later write must not be overtaken, nor wait where it goes elsewhere.
TEST_F(AbsentPages, AWriteThatWasLeftLandsBeforeThoseThatAreDone) {
  EXPECT_FALSE(transfer(Opcode::kWrite, held(), 50ms).ok());
  std::fill(mine_.begin(), mine_.end(), 'x');
  EXPECT_TRUE(transfer(Opcode::kWrite, there(), 10s).ok());
  EXPECT_EQ(transfer(Opcode::kWrite, held() + kSize - 1, 1, 50ms).status.error().code(),
            Code::kDeadlineExceeded);
  auto later =
      engine_->submit({request(Opcode::kWrite, mine_.data(), target_, held(), kSize)}, 30s);
  ASSERT_TRUE(later);
  EXPECT_EQ(ask(kBring), 0);
  ASSERT_TRUE((*later)->wait(20s));
  ASSERT_TRUE((*later)->outcome().ok());
  EXPECT_EQ(ask(kFill), 1) << "the later one";
}

// Again and again: one thread waits for the pages, the others are there for memory that is not
// held.
TEST_F(AbsentPages, CallsThatWereLeftKeepNobodyOut) {
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(transfer(i % 2 == 0 ? Opcode::kRead : Opcode::kWrite, held(), 10ms).ok());
  EXPECT_TRUE(transfer(Opcode::kWrite, untouched(), 10s).ok());
  EXPECT_TRUE(transfer(Opcode::kRead, untouched(), 10s).ok());
  EXPECT_TRUE(is_all('m'));
}

TEST_F(AbsentPages, HoldUpNobodyElse) {
  std::vector<std::vector<char>> buffers(3, std::vector<char>(kSize, 'w'));
  std::vector<std::shared_ptr<TransferBatch>> waiting;
  for (auto& buffer : buffers) {
    ASSERT_TRUE(engine_->register_memory(buffer.data(), kSize));
    auto batch =
        engine_->submit({request(Opcode::kRead, buffer.data(), target_, held(), kSize)}, 60s);
    ASSERT_TRUE(batch);
    waiting.push_back(*std::move(batch));
  }
  const auto other = make();
  std::vector<char> theirs(kSize, 't');
  ASSERT_TRUE(other->register_memory(theirs.data(), kSize));
  const std::string name = "127.0.0.1:" + std::to_string(other->port());
  const auto good = engine_->open_segment(name, 5s);
  ASSERT_TRUE(good) << good.error().message();
  const TransferRequest read = request(Opcode::kRead, mine_.data(), *good,
                                       reinterpret_cast<std::uint64_t>(theirs.data()), kSize);
  EXPECT_TRUE(engine_->transfer({&read, 1}, 5s).ok());
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(engine_->notify(name, {"name", "message"}, 5s));
  // Nor of the same peer's other memory.
  EXPECT_TRUE(transfer(Opcode::kRead, there(), 5s).ok());
  EXPECT_TRUE(is_all('g'));
  EXPECT_TRUE(transfer(Opcode::kRead, untouched(), 5s).ok());
  EXPECT_TRUE(is_all('\0'));
  for (const auto& batch : waiting)
    EXPECT_FALSE(batch->done());
  end_child(SIGKILL);
  for (const auto& batch : waiting) {
    EXPECT_TRUE(batch->wait(5s));
    EXPECT_FALSE(batch->outcome().ok());
  }
}

// What the kernel holds is left to it, and uses nothing of the engine any more.
TEST_F(AbsentPages, AnEngineEndsWithoutThem) {
  EXPECT_FALSE(transfer(Opcode::kWrite, held(), 50ms).ok());
  auto batch = engine_->submit({request(Opcode::kRead, mine_.data(), target_, held(), kSize)}, 60s);
  ASSERT_TRUE(batch);
  engine_.reset();
  EXPECT_TRUE((*batch)->wait(5s));
  EXPECT_EQ(ask(kTakeBack), static_cast<std::int32_t>(Code::kBusy)) << "the write stands there";
  EXPECT_EQ(ask(kBring), 0);
  EXPECT_TRUE(is_all('m'));
}

}  // namespace
}  // namespace mooncake
