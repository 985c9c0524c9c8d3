// Proves the copies between processes that two threads make together: every byte where it should be
// by both ways, and that the death of either side in the middle is a failure in time, after which
// nothing moves.
#include <algorithm>

#include "shm_processes.h"

namespace mooncake {
namespace {

constexpr std::size_t kLarge = 24u << 20;

char pattern(std::size_t at, unsigned seed) { return static_cast<char>((at * 31 + seed) >> 4); }

class SharedCopies : public ShmProcesses, public testing::WithParamInterface<bool> {
 protected:
  // With one helper, whatever this machine has.
  SharedCopies() { ::setenv("MOONCAKE_COPY_HELPERS", "1", 1); }
  ~SharedCopies() override { ::unsetenv("MOONCAKE_COPY_HELPERS"); }

  void open() {
    engine_ = make();
    mine_.assign(kLarge, 'm');
    ASSERT_TRUE(engine_->register_memory(mine_.data(), kLarge));
    ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
    const auto target = engine_->open_segment("127.0.0.1:" + std::to_string(board().port));
    ASSERT_TRUE(target) << target.error().message();
    target_ = *target;
  }

  std::unique_ptr<TransferEngine> engine_;
  std::vector<char> mine_;
  SegmentHandle target_{};
};

TEST_P(SharedCopies, EveryByteArrives) {
  start_child(owner(kLarge, GetParam()));
  open();
  std::vector<char> back(kLarge);
  ASSERT_TRUE(engine_->register_memory(back.data(), kLarge));
  // One slice; few large ones; many small ones, none of which begins on a border.
  for (const std::size_t piece : {kLarge, std::size_t{5'000'017}, std::size_t{70'001}}) {
    for (unsigned round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < kLarge; ++i)
        mine_[i] = pattern(i, round);
      for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
        char* const local = opcode == Opcode::kWrite ? mine_.data() : back.data();
        std::vector<TransferRequest> requests;
        for (std::size_t at = 0; at < kLarge; at += piece) {
          requests.push_back(request(opcode, local + at, target_, board().address + at,
                                     std::min(piece, kLarge - at)));
        }
        const TransferOutcome outcome = engine_->transfer(requests, 30s);
        ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
        EXPECT_EQ(outcome.bytes_by_path.at(GetParam() ? "shm" : "process_vm"), kLarge);
      }
      ASSERT_EQ(std::memcmp(mine_.data(), back.data(), kLarge), 0) << piece << ", " << round;
      std::fill(back.begin(), back.end(), 0);
    }
  }
  EXPECT_GT(metric(*engine_, "mooncake_engine_helped_copies_total"), 0);
  board().over = true;
}

// The owner is killed while two threads copy: the call fails in time, and on return neither of them
// touches its buffer any more.
TEST_P(SharedCopies, TheOwnerDiesInTheMiddle) {
  start_child(owner(kLarge, GetParam()));
  open();
  const TransferRequest read =
      request(Opcode::kRead, mine_.data(), target_, board().address, kLarge);
  for (int round = 0; round < 3; ++round)
    ASSERT_TRUE(engine_->transfer({&read, 1}, 10s).ok());
  std::atomic<int> copies{0};
  std::thread killer([&] {
    while (copies < 3)
      std::this_thread::yield();
    ::kill(child_, SIGKILL);
  });
  bool failed = false;
  while (!failed) {
    const auto begun = std::chrono::steady_clock::now();
    failed = !engine_->transfer({&read, 1}, 2s).ok();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 4s);
    ++copies;
    std::fill(mine_.begin(), mine_.end(), 'x');
    for (int look = 0; look < 3; ++look) {
      ASSERT_EQ(std::count(mine_.begin(), mine_.end(), 'x'), static_cast<std::ptrdiff_t>(kLarge));
      std::this_thread::yield();
    }
  }
  killer.join();
  // Nothing of the dead stays here.
  EXPECT_TRUE(comes_true([&] {
    return metric(*engine_, "mooncake_engine_memory_bytes{use=\"mappings\"}") == 0 &&
           metric(*engine_, "mooncake_engine_memory_bytes{use=\"dead_mappings\"}") == 0;
  }));
}

// A copier is killed while its two threads write here: the owner has its memory back at once, and
// from then on nothing moves in it.
TEST_P(SharedCopies, TheCopierDiesInTheMiddle) {
  start_child([](Board& board) {
    const auto engine = make();
    std::vector<char> mine(kLarge, 'w');
    if (!engine->register_memory(mine.data(), kLarge)) ::_exit(4);
    while (board.port == 0)
      std::this_thread::yield();
    const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board.port));
    if (!target) ::_exit(5);
    const TransferRequest write =
        request(Opcode::kWrite, mine.data(), *target, board.address, kLarge);
    for (;;) {
      if (engine->transfer({&write, 1}, 10s).ok()) ++board.copies;
    }
  });
  engine_ = make();
  std::vector<char> own(GetParam() ? 0 : kLarge);
  char* memory = own.data();
  if (GetParam()) {
    memory = static_cast<char*>(engine_->allocate_memory(kLarge).value_or(nullptr));
  } else {
    ASSERT_TRUE(engine_->register_memory(memory, kLarge));
  }
  board().address = reinterpret_cast<std::uint64_t>(memory);
  board().port = engine_->port();
  ASSERT_TRUE(comes_true([&] { return board().copies > 5; }));
  end_child(SIGKILL);
  const auto taken = engine_->unregister_memory(memory, 5s);
  ASSERT_TRUE(taken) << taken.error().message();
  std::memset(memory, 'x', kLarge);
  for (int look = 0; look < 5; ++look) {
    ASSERT_EQ(std::count(memory, memory + kLarge, 'x'), static_cast<std::ptrdiff_t>(kLarge));
    std::this_thread::yield();
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, SharedCopies, testing::Bool(),
                         [](const auto& with) { return with.param ? "Mapped" : "ProcessVm"; });

}  // namespace
}  // namespace mooncake
