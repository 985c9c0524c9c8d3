// Proves the shm transport between real processes: every byte where it should be by both ways, and
// that a process which is stopped or killed in the middle of a copy neither holds up its peer
// beyond the deadline nor writes into memory that was given back.
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "shm_processes.h"

namespace mooncake {
namespace {

class ShmWays : public ShmProcesses, public testing::WithParamInterface<bool> {};

TEST_P(ShmWays, EveryByteArrives) {
  constexpr std::size_t kSize = 5u << 20;
  start_child(owner(kSize, GetParam()));
  ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
  const auto engine = make();
  std::vector<char> mine(kSize), back(kSize);
  for (std::size_t i = 0; i < kSize; ++i)
    mine[i] = static_cast<char>(i * 7 >> 5);
  ASSERT_TRUE(engine->register_memory(mine.data(), kSize));
  ASSERT_TRUE(engine->register_memory(back.data(), kSize));
  const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board().port));
  ASSERT_TRUE(target) << target.error().message();
  const std::string way = GetParam() ? "shm" : "process_vm";
  // One large, then thousands of small ones that don't begin on any border, in both directions.
  for (const std::size_t piece : {kSize, std::size_t{1789}}) {
    for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
      std::vector<TransferRequest> requests;
      char* const local = opcode == Opcode::kWrite ? mine.data() : back.data();
      for (std::size_t at = 0; at < kSize; at += piece) {
        requests.push_back(request(opcode, local + at, *target, board().address + at,
                                   std::min(piece, kSize - at)));
      }
      const TransferOutcome outcome = engine->transfer(requests, 10s);
      ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
      EXPECT_EQ(outcome.bytes_by_path.at(way), kSize);
    }
    EXPECT_EQ(std::memcmp(mine.data(), back.data(), kSize), 0);
    std::fill(back.begin(), back.end(), 0);
  }
  // Beyond the registered range nothing is to be had, and the rest of the batch is.
  const TransferRequest mixed[] = {
      request(Opcode::kRead, back.data(), *target, board().address + kSize - 10, 20),
      request(Opcode::kRead, back.data() + 100, *target, board().address, 50)};
  const TransferOutcome outcome = engine->transfer(mixed, 5s);
  EXPECT_EQ(outcome.codes, (std::vector<std::int32_t>{-3, 0}));
  board().over = true;
}

// The owner stands still: copies go on, or end at their deadline.
TEST_P(ShmWays, AStoppedOwnerHoldsUpNobody) {
  constexpr std::size_t kSize = 1u << 20;
  start_child(owner(kSize, GetParam()));
  ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
  const auto engine = make();
  std::vector<char> mine(kSize, 'm');
  ASSERT_TRUE(engine->register_memory(mine.data(), kSize));
  const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board().port));
  ASSERT_TRUE(target);
  const TransferRequest read = request(Opcode::kRead, mine.data(), *target, board().address, kSize);
  ASSERT_TRUE(engine->transfer({&read, 1}, 5s).ok());
  ::kill(child_, SIGSTOP);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(engine->transfer({&read, 1}, 1s).ok()) << "known memory needs nobody's help";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 2s);
  EXPECT_EQ(mine.front(), 'o');
  // Killed: a failure within the deadline, and no byte that isn't the owner's.
  end_child(SIGKILL);
  std::fill(mine.begin(), mine.end(), 'm');
  const TransferOutcome after = engine->transfer({&read, 1}, 2s);
  EXPECT_FALSE(after.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
}

INSTANTIATE_TEST_SUITE_P(Ways, ShmWays, testing::Bool(),
                         [](const auto& with) { return with.param ? "Mapped" : "ProcessVm"; });

// A child writes into the parent's memory without end and is stopped somewhere in it, again and
// again. The parent takes the memory back each time: when it is told that it has it, no byte
// changes any more; when it is told that the range is busy, it waits until the child has gone on.
TEST_F(ShmProcesses, AStoppedWriterNeverWritesIntoMemoryThatWasGivenBack) {
  constexpr std::size_t kSize = 8u << 20;
  start_child([](Board& board) {
    const auto engine = make();
    std::vector<char> mine(kSize, 'w');
    if (!engine->register_memory(mine.data(), kSize)) ::_exit(4);
    while (board.port == 0)
      std::this_thread::yield();
    const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board.port));
    if (!target) ::_exit(5);
    while (!board.over) {
      const TransferRequest write =
          request(Opcode::kWrite, mine.data(), *target, board.address, kSize);
      board.last_code = engine->transfer({&write, 1}, 200ms).codes.front();
      if (board.last_code == 0) ++board.copies;
    }
  });
  const auto engine = make();
  void* const memory = engine->allocate_memory(kSize).value_or(nullptr);
  ASSERT_NE(memory, nullptr);
  auto* const bytes = static_cast<char*>(memory);
  board().address = reinterpret_cast<std::uint64_t>(memory);
  board().port = engine->port();
  int busy = 0;
  for (int round = 0; round < 30; ++round) {
    const std::uint64_t before = board().copies;
    ASSERT_TRUE(comes_true([&] { return board().copies > before + 2; }))
        << "round " << round << ", last code " << board().last_code;
    ::kill(child_, SIGSTOP);
    ASSERT_EQ(::waitpid(child_, nullptr, WUNTRACED), child_);
    const Result<void> taken = engine->unregister_memory(memory, 20ms);
    if (!taken) {
      // In quarantine: the child is inside.
      EXPECT_EQ(taken.error().code(), Code::kBusy) << taken.error().message();
      EXPECT_EQ(engine->unregister_memory(memory, 1ms).error().code(), Code::kBusy);
      ++busy;
    } else {
      std::memset(bytes, round, kSize);
    }
    ::kill(child_, SIGCONT);
    if (taken) {
      // The child has to find out by itself, so that it has gone on for sure.
      ASSERT_TRUE(comes_true([&] { return board().last_code != 0; }));
      for (std::size_t i = 0; i < kSize; ++i)
        ASSERT_EQ(bytes[i], static_cast<char>(round)) << "byte " << i << " of round " << round;
    }
    ASSERT_TRUE(comes_true([&] { return board().last_code != 0; }));
    if (!taken) {
      const Result<void> again = engine->unregister_memory(memory, 10s);
      EXPECT_TRUE(again) << again.error().message();
    }
    ASSERT_TRUE(engine->register_memory(memory, kSize));
  }
  board().over = true;
  std::printf("stopped inside of a copy in %d of 30 rounds\n", busy);
}

// The program that the child executes in AnotherProgramIsAnotherPeer: this one, which goes no
// further than here. Has other bytes where the one before had its own.
constexpr const char* kHeir = "MOONCAKE_TEST_HEIR";
constexpr std::size_t kHeirSize = 1u << 20;
const bool heir = [] {
  const char* const given = std::getenv(kHeir);
  if (!given) return false;
  unsigned long address = 0;
  int fd = -1;
  std::sscanf(given, "%d %lu", &fd, &address);
  auto* const board = static_cast<Board*>(
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  void* const place = reinterpret_cast<void*>(address);
  auto* const bytes =
      static_cast<char*>(::mmap(place, kHeirSize, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  if (bytes != place) ::_exit(9);
  std::memset(bytes, 'h', kHeirSize);
  for (board->answered = 1; board->asked != 2;)
    std::this_thread::yield();
  board->last_code = std::count(bytes, bytes + kHeirSize, 'h') == kHeirSize ? 0 : 1;
  for (board->answered = 2;;)
    ::pause();
}();

// Its process id lives on, and so does its connection, in a child that it has forked before.
TEST_F(ShmProcesses, AnotherProgramIsAnotherPeer) {
  const int fd = ::dup(memory_.fd());
  start_child([fd](Board& board) {
    const auto engine = make();
    auto* const memory = static_cast<char*>(
        ::mmap(nullptr, kHeirSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(memory, 'o', kHeirSize);
    if (!engine->register_memory(memory, kHeirSize)) ::_exit(4);
    board.address = reinterpret_cast<std::uint64_t>(memory);
    board.port = engine->port();
    while (board.asked != 1)
      std::this_thread::yield();
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;)
        ::pause();
    }
    ::setenv(kHeir, (std::to_string(fd) + " " + std::to_string(board.address)).c_str(), 1);
    ::execl("/proc/self/exe", "heir", static_cast<char*>(nullptr));
    ::_exit(5);
  });
  ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
  const auto engine = make();
  std::vector<char> mine(kHeirSize, 'm');
  ASSERT_TRUE(engine->register_memory(mine.data(), kHeirSize));
  const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board().port));
  ASSERT_TRUE(target);
  TransferRequest one = request(Opcode::kRead, mine.data(), *target, board().address, kHeirSize);
  ASSERT_TRUE(engine->transfer({&one, 1}, 5s).ok());
  board().asked = 1;
  ASSERT_TRUE(comes_true([&] { return board().answered == 1; }));
  EXPECT_FALSE(engine->transfer({&one, 1}, 500ms).ok());
  one.opcode = Opcode::kWrite;
  EXPECT_FALSE(engine->transfer({&one, 1}, 500ms).ok());
  board().asked = 2;
  ASSERT_TRUE(comes_true([&] { return board().answered == 2; }));
  EXPECT_EQ(board().last_code, 0) << "the new program was written into";
  ::close(fd);
}

// Pages that are gone, on either side: what was asked beside them is moved all the same.
TEST_F(ShmProcesses, OneBadEntryFailsAlone) {
  constexpr std::size_t kPage = 4096, kPages = 64, kHole = 20;
  start_child([](Board& board) {
    const auto engine = make();
    auto* const memory = static_cast<char*>(::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(memory, 'o', kPages * kPage);
    if (!engine->register_memory(memory, kPages * kPage)) ::_exit(4);
    ::munmap(memory + kHole * kPage, kPage);
    board.address = reinterpret_cast<std::uint64_t>(memory);
    board.port = engine->port();
    while (!board.over)
      std::this_thread::yield();
  });
  ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
  const auto engine = make();
  auto* const mine = static_cast<char*>(
      ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_TRUE(engine->register_memory(mine, kPages * kPage));
  const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board().port));
  ASSERT_TRUE(target);
  const auto codes = [&](Opcode opcode) {
    std::vector<TransferRequest> requests;
    for (std::size_t i = 0; i < kPages; ++i)
      requests.push_back(
          request(opcode, mine + i * kPage, *target, board().address + i * kPage, kPage));
    return engine->transfer(requests, 10s).codes;
  };
  const auto is_alone = [](const std::vector<std::int32_t>& got, std::size_t bad) {
    return got[bad] != 0 && std::count(got.begin(), got.end(), 0) == kPages - 1;
  };
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite})
    EXPECT_TRUE(is_alone(codes(opcode), kHole)) << "theirs";
  ::munmap(mine + kHole * kPage, kPage);
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite})
    EXPECT_TRUE(is_alone(codes(opcode), kHole)) << "ours";
  ::munmap(mine, kPages * kPage);
  board().over = true;
}

// The namesake of a killed peer is another peer: nothing is written into what its forerunner had.
TEST_F(ShmProcesses, ARestartedPeerIsFoundAnew) {
  constexpr std::size_t kSize = 1u << 20;
  std::uint16_t port = 0;
  std::unique_ptr<TransferEngine> engine;
  std::vector<char> mine(kSize, 'm');
  start_child(owner(kSize, true));
  ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
  port = board().port;
  // The second life is forked off before this process has threads, and waits for its turn.
  const pid_t first = child_;
  start_child([port, this](Board& board) {
    while (board.copies == 0)
      std::this_thread::yield();
    const auto again = make("127.0.0.1:" + std::to_string(port));
    void* const memory = again->allocate_memory(kSize).value_or(nullptr);
    std::memset(memory, '2', kSize);
    board.address = reinterpret_cast<std::uint64_t>(memory);
    board.copies = 2;
    while (!board.over)
      std::this_thread::yield();
  });
  engine = make();
  ASSERT_TRUE(engine->register_memory(mine.data(), kSize));
  const auto target = engine->open_segment("127.0.0.1:" + std::to_string(port));
  ASSERT_TRUE(target);
  TransferRequest read = request(Opcode::kRead, mine.data(), *target, board().address, kSize);
  ASSERT_TRUE(engine->transfer({&read, 1}, 5s).ok());
  EXPECT_EQ(mine.back(), 'o');
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  board().copies = 1;
  ASSERT_TRUE(comes_true([&] { return board().copies == 2; }));
  read.target_offset = board().address;
  const TransferOutcome outcome = engine->transfer({&read, 1}, 5s);
  ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
  EXPECT_EQ(mine.front(), '2');
  EXPECT_EQ(mine.back(), '2');
  board().over = true;
}

// No way leads to a life of the peer that has ended, be it only looked up or used before. What was
// tried in vain there leaves enough attempts for its next life, at the same addresses.
TEST_F(ShmProcesses, TheNextLifeOfAPeerIsFoundByTheFirstCopy) {
  constexpr std::size_t kSize = 64u << 10;
  const auto try_it = [](Opcode opcode, const char* path, bool used) {
    std::vector<char> mine(kSize, 'm'), theirs(kSize, 't');
    auto owner = make("127.0.0.1", path);
    ASSERT_TRUE(owner->register_memory(theirs.data(), kSize));
    const std::string name = "127.0.0.1:" + std::to_string(owner->port());
    const auto engine = make("127.0.0.1", path);
    ASSERT_TRUE(engine->register_memory(mine.data(), kSize));
    const auto target = engine->open_segment(name);
    ASSERT_TRUE(target);
    const TransferRequest one = request(opcode, mine.data(), *target,
                                        reinterpret_cast<std::uint64_t>(theirs.data()), kSize);
    if (used) {
      ASSERT_TRUE(engine->transfer({&one, 1}, 5s).ok());
    }
    owner.reset();
    owner = make(name, path);
    ASSERT_TRUE(owner->register_memory(theirs.data(), kSize));
    std::ranges::fill(mine, 'n');
    std::ranges::fill(theirs, 'u');
    const TransferOutcome outcome = engine->transfer({&one, 1}, 5s);
    ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
    EXPECT_EQ(mine.back(), opcode == Opcode::kWrite ? 'n' : 'u');
    EXPECT_EQ(mine, theirs);
  };
  for (const char* path : {"auto", "unix", "ring", "shm", "tcp"}) {
    for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite}) {
      for (const bool used : {false, true}) {
        SCOPED_TRACE(std::string(path) + (opcode == Opcode::kWrite ? " write" : " read") +
                     (used ? ", used before" : ""));
        try_it(opcode, path, used);
      }
    }
  }
}

}  // namespace
}  // namespace mooncake
