// Proves the shm transport at its edges, between real processes: a pool of 16 GiB of which little
// is used; ten thousand pools of one process; a process that has no descriptor left; and one that
// executes another program.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <random>

#include "memory/pool.h"
#include "shm_processes.h"
#include "transfer/engine.h"

namespace mooncake {
namespace {

// Of a pool of 16 GiB both ends are used, by a peer who maps it, and no more memory than that.
TEST_F(ShmProcesses, SixteenGigabytesOfWhichLittleIsUsed) {
  constexpr std::uint64_t kSize = 16ull << 30;
  start_child([](Board& board) {
    const auto engine = make();
    memory::Pool::Options options;
    options.size = kSize;
    const auto pool = memory::Pool::create(options);
    if (!pool || !engine->register_memory((*pool)->data(), kSize)) ::_exit(4);
    engine->engine().registry().share_pool(**pool);
    std::memcpy((*pool)->data(), "first", 5);
    std::memcpy((*pool)->data() + kSize - 4, "last", 4);
    board.address = reinterpret_cast<std::uint64_t>((*pool)->data());
    board.port = engine->port();
    while (!board.over)
      std::this_thread::yield();
    struct stat about {};
    ::fstat((*pool)->fd(), &about);
    board.copies = static_cast<std::uint64_t>(about.st_blocks) * 512;
    while (board.over)
      std::this_thread::yield();
  });
  ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
  const auto engine = make();
  std::vector<char> mine(4096, '-');
  ASSERT_TRUE(engine->register_memory(mine.data(), mine.size()));
  const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board().port));
  ASSERT_TRUE(target) << target.error().message();
  const TransferRequest both[] = {
      request(Opcode::kRead, mine.data(), *target, board().address, 5),
      request(Opcode::kRead, mine.data() + 5, *target, board().address + kSize - 4, 4)};
  TransferOutcome outcome = engine->transfer(both, 10s);
  ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
  EXPECT_EQ(outcome.bytes_by_path.at("shm"), 9u);
  EXPECT_EQ(std::string(mine.data(), 9), "firstlast");
  const TransferRequest middle =
      request(Opcode::kWrite, mine.data(), *target, board().address + kSize / 2 + 12345, 4096);
  outcome = engine->transfer({&middle, 1}, 10s);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.bytes_by_path.at("shm"), 4096u);
  board().over = true;
  ASSERT_TRUE(comes_true([&] { return board().copies != 0; }));
  EXPECT_LE(board().copies, 64u << 20);
  board().over = false;
}

// A child with `count` pools, each of which holds its own number. Fewer, when it can have no more.
std::function<void(Board&)> owner_of_pools(std::size_t count) {
  return [count](Board& board) {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    const auto engine = make();
    auto* const places = static_cast<std::uint64_t*>(
        engine->allocate_memory(count * sizeof(std::uint64_t)).value_or(nullptr));
    if (places == nullptr) ::_exit(4);
    std::size_t made = 0;
    for (; made < count; ++made) {
      void* const memory = engine->allocate_memory(4096).value_or(nullptr);
      if (memory == nullptr) break;
      std::memcpy(memory, &made, sizeof made);
      places[made] = reinterpret_cast<std::uint64_t>(memory);
    }
    board.copies = made;
    board.address = reinterpret_cast<std::uint64_t>(places);
    board.port = engine->port();
    while (!board.over)
      std::this_thread::yield();
    for (std::size_t i = 0; i < made; ++i) {
      if (!engine->free_memory(reinterpret_cast<void*>(places[i]))) ::_exit(5);
    }
    board.last_code = 1;
    while (board.over)
      std::this_thread::yield();
  };
}

class ManyPools : public ShmProcesses {
 protected:
  void open() {
    ASSERT_TRUE(comes_true([&] { return board().port != 0; }, 60s));
    engine_ = make();
    places_.resize(board().copies);
    ASSERT_GT(places_.size(), 500u);
    ASSERT_TRUE(engine_->register_memory(places_.data(), places_.size() * 8));
    const auto target = engine_->open_segment("127.0.0.1:" + std::to_string(board().port));
    ASSERT_TRUE(target) << target.error().message();
    target_ = *target;
    const TransferRequest all =
        request(Opcode::kRead, places_.data(), target_, board().address, places_.size() * 8);
    ASSERT_TRUE(engine_->transfer({&all, 1}, 10s).ok());
    found_.assign(places_.size(), 0);
    ASSERT_TRUE(engine_->register_memory(found_.data(), found_.size() * 8));
  }
  // Of these pools, in one batch.
  TransferOutcome read(const std::vector<std::size_t>& pools) {
    std::vector<TransferRequest> requests;
    for (const std::size_t i : pools)
      requests.push_back(request(Opcode::kRead, &found_[i], target_, places_[i], 8));
    return engine_->transfer(requests, 60s);
  }

  std::unique_ptr<TransferEngine> engine_;
  SegmentHandle target_{};
  std::vector<std::uint64_t> places_, found_;
};

TEST_F(ManyPools, TenThousandOfOneProcess) {
  start_child(owner_of_pools(10'000));
  open();
  std::printf("%zu pools\n", places_.size());
  std::vector<std::size_t> order(places_.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  // A few by themselves, then all at once, and all once more.
  for (std::size_t i = 0; i < 20; ++i) {
    const TransferOutcome one = read({order[i]});
    ASSERT_TRUE(one.ok()) << one.status.error().message();
  }
  for (int round = 0; round < 2; ++round) {
    const TransferOutcome outcome = read(order);
    ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
    for (std::size_t i = 0; i < found_.size(); ++i)
      ASSERT_EQ(found_[i], i);
    EXPECT_EQ(outcome.bytes_by_path.at("shm"), found_.size() * 8);
    std::fill(found_.begin(), found_.end(), 0);
  }
  EXPECT_GE(metric(*engine_, "mooncake_engine_memory_bytes{use=\"mappings\"}"),
            static_cast<double>(places_.size() * 4096));
  // All of them go: nothing of them stays here.
  board().over = true;
  ASSERT_TRUE(comes_true([&] { return board().last_code == 1; }, 60s));
  EXPECT_TRUE(comes_true([&] {
    return metric(*engine_, "mooncake_engine_memory_bytes{use=\"mappings\"}") < 1 << 20;
  }));
  board().over = false;
}

// Without descriptors left nothing new is mapped; what is asked for comes another way.
TEST_F(ManyPools, NoDescriptorIsLeft) {
  start_child(owner_of_pools(600));
  open();
  ASSERT_TRUE(read({0}).ok());
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit before = files;
  files.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  const TransferOutcome outcome = read({1, 2, 3});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
  EXPECT_EQ(outcome.bytes_by_path.at("process_vm"), 24u);
  const TransferOutcome again = read({0, 4});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.bytes_by_path.at("shm"), 16u) << "the way to the peer is still open";
  EXPECT_EQ(found_[3], 3u);
  board().over = true;
  ASSERT_TRUE(comes_true([&] { return board().last_code == 1; }));
  board().over = false;
}

// Everything that the engine opens is closed by exec, so that no program started from here holds
// connections or memory of ours.
TEST_F(ShmProcesses, NothingIsLeftOpenForOtherPrograms) {
  start_child(owner(1u << 20, true));
  ASSERT_TRUE(comes_true([&] { return board().port != 0; }));
  const auto engine = make();
  void* const mine = engine->allocate_memory(4096).value_or(nullptr);
  const auto target = engine->open_segment("127.0.0.1:" + std::to_string(board().port));
  ASSERT_TRUE(target);
  const TransferRequest read = request(Opcode::kRead, mine, *target, board().address, 4096);
  ASSERT_TRUE(engine->transfer({&read, 1}, 5s).ok());
  const auto batch = engine->submit({read}, 5s);
  ASSERT_TRUE(batch && (*batch)->completion_fd() >= 0);
  DIR* const folder = ::opendir("/proc/self/fd");
  ASSERT_NE(folder, nullptr);
  int ours = 0;
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    char link[256] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (fd <= 2 || ::readlink(path.c_str(), link, sizeof link - 1) < 0) continue;
    const std::string what = link;
    if (what.starts_with("pipe:") || what.starts_with("/")) {
      if (!what.starts_with("/memfd:")) continue;  // of who started this test
    }
    ++ours;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << what;
  }
  ::closedir(folder);
  EXPECT_GT(ours, 8) << "reactor, listener, connections, pools, gate, pidfd";
  board().over = true;
}

}  // namespace
}  // namespace mooncake
