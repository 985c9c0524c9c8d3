// The blocking facade: options are checked before anything is opened, sources must be registered,
// memory of its own comes registered and goes, a forked child is refused, and the destructor waits
// for callers.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "mooncake/transfer.h"
#include "net/runtime.h"
#include "transfer/engine_testing.h"

namespace mooncake {
namespace {

using namespace transfer::testing;

class EnginePath : public testing::TestWithParam<const char*> {};

TEST_P(EnginePath, MovesBytesBetweenEngines) {
  const auto one = make({}, GetParam()), two = make({}, GetParam());
  EXPECT_NE(one->port(), 0);
  EXPECT_EQ(one->local_name(), "127.0.0.1:" + std::to_string(one->port()));
  std::vector<char> mine(100'000, 'a'), theirs(100'000, 'b');
  ASSERT_TRUE(one->register_memory(mine.data(), mine.size()));
  ASSERT_TRUE(two->register_memory(theirs.data(), theirs.size()));
  const auto target = one->open_segment(two->local_name());
  ASSERT_TRUE(target);
  EXPECT_EQ(*one->open_segment(two->local_name()), *target);
  EXPECT_EQ(*one->open_segment(one->local_name()), SegmentHandle::kLocal);
  const TransferRequest requests[] = {
      request(Opcode::kWrite, mine.data(), *target, theirs.data(), 1000),
      request(Opcode::kRead, mine.data() + 1000, *target, theirs.data() + 50'000, 1000),
      request(Opcode::kWrite, mine.data(), SegmentHandle::kLocal, mine.data() + 5000, 10),
      request(Opcode::kRead, nullptr, *target, nullptr, 0)};
  const TransferOutcome outcome = one->transfer(requests, 5s);
  EXPECT_TRUE(outcome.ok()) << outcome.status.error().message();
  EXPECT_TRUE(outcome.status);
  EXPECT_EQ(outcome.codes, std::vector<std::int32_t>(4, 0));
  EXPECT_EQ(outcome.bytes, 2010u);
  const std::string path = GetParam();
  const bool copies = path == "auto" || path == "shm";
  EXPECT_EQ(outcome.bytes_by_path.at(copies ? "process_vm" : path), 2000u);
  EXPECT_EQ(outcome.bytes_by_path.at("local"), 10u);
  EXPECT_EQ(outcome.reasons.size(), 2u);
  EXPECT_EQ(std::string_view(theirs.data(), 1001), std::string(1000, 'a') + "b");
  EXPECT_EQ(std::string_view(mine.data() + 1000, 1000), std::string(1000, 'b'));
}

INSTANTIATE_TEST_SUITE_P(Paths, EnginePath, testing::Values("auto", "tcp", "shm", "unix", "ring"),
                         [](const auto& with) { return std::string(with.param); });

TEST(TransferEngine, RefusesSourcesThatAreNotRegistered) {
  const auto engine = make();
  std::vector<char> known(1000, 'a'), unknown(1000, 'b');
  ASSERT_TRUE(engine->register_memory(known.data(), known.size()));
  const TransferRequest requests[] = {
      request(Opcode::kWrite, unknown.data(), SegmentHandle::kLocal, known.data(), 10),
      request(Opcode::kRead, known.data() + 999, SegmentHandle::kLocal, known.data(), 2),
      request(Opcode::kRead, known.data(), SegmentHandle::kLocal, unknown.data(), 10),
      request(Opcode::kRead, known.data(), SegmentHandle::kLocal, known.data() + 10, 10)};
  const TransferOutcome outcome = engine->transfer(requests, 5s);
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.codes, (std::vector<std::int32_t>{-3, -3, -3, 0}));
  ASSERT_FALSE(outcome.status);
  EXPECT_EQ(outcome.status.error().code(), Code::kAddressNotRegistered);
  EXPECT_NE(outcome.status.error().message().find("request 0 of 4: write 10 bytes"),
            std::string::npos);
}

TEST(TransferEngine, NamesBadOptions) {
  const auto message = [](TransferOptions options) {
    const auto engine = TransferEngine::create(options);
    EXPECT_FALSE(engine);
    return engine ? std::string() : engine.error().message();
  };
  TransferOptions options;
  options.local_name = "127.0.0.1:99999";
  EXPECT_NE(message(options).find("local_name"), std::string::npos);
  options = {};
  options.metadata_server = "gopher://here";
  EXPECT_NE(message(options).find("metadata_server"), std::string::npos);
  const auto first = make();
  options = {};
  options.local_name = first->local_name();
  const auto second = TransferEngine::create(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAddressInUse);
}

TEST(TransferEngine, RegistrationsAreCounted) {
  const auto engine = make();
  std::vector<char> memory(8192);
  ASSERT_TRUE(engine->register_memory(memory.data(), 8192));
  ASSERT_TRUE(engine->register_memory(memory.data(), 4096));
  EXPECT_EQ(engine->register_memory(reinterpret_cast<void*>(4096), 10).error().code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(engine->unregister_memory(memory.data()));
  ASSERT_TRUE(engine->unregister_memory(memory.data()));
  EXPECT_EQ(engine->unregister_memory(memory.data()).error().code(), Code::kAddressNotRegistered);
}

// Within the engine a copy needs no other thread: not even that of an executor that is kept busy.
TEST(TransferEngine, CopiesItsOwnMemoryOnTheCallersThread) {
  const auto engine = make();
  constexpr std::size_t kSize = 3'000'001;
  std::vector<char> memory(2 * kSize);
  for (std::size_t i = 0; i < kSize; ++i)
    memory[i] = static_cast<char>(i * 7 >> 3);
  ASSERT_TRUE(engine->register_memory(memory.data(), memory.size()));
  std::promise<void> held, go_on;
  engine->runtime().env().executor.post([&held, going_on = go_on.get_future().share()] {
    held.set_value();
    going_on.wait();
  });
  held.get_future().wait();
  const TransferRequest requests[] = {
      request(Opcode::kWrite, memory.data(), SegmentHandle::kLocal, memory.data() + kSize, kSize),
      // Over itself, in both directions.
      request(Opcode::kRead, memory.data() + 10, SegmentHandle::kLocal, memory.data(), 50'000)};
  const TransferOutcome outcome = engine->transfer(requests, 60s);
  go_on.set_value();
  ASSERT_TRUE(outcome.ok()) << outcome.status.error().message();
  EXPECT_EQ(outcome.bytes_by_path.at("local"), kSize + 50'000);
  EXPECT_EQ(outcome.reasons.at("local"), "copied by the calling thread");
  EXPECT_EQ(std::memcmp(memory.data() + 10, memory.data() + kSize, 50'000), 0);
  EXPECT_EQ(std::memcmp(memory.data() + 50'010, memory.data() + kSize + 50'010, kSize - 50'010), 0);
}

// Of any size, in both directions, waited for or not.
TEST(TransferEngine, MovesRangesThatOverlapAsMemmoveDoes) {
  TransferOptions options;
  const auto engine = make(options);
  constexpr std::size_t kSize = (4u << 20) + 17;
  std::vector<char> memory(2 * kSize), expected(2 * kSize);
  ASSERT_TRUE(engine->register_memory(memory.data(), memory.size()));
  for (const bool submitted : {false, true}) {
    for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite}) {
      for (const std::size_t apart : {std::size_t{1}, std::size_t{4096}, kSize - 1}) {
        for (const auto& [to, from] :
             {std::pair{apart, std::size_t{0}}, std::pair{std::size_t{0}, apart}}) {
          for (std::size_t i = 0; i < memory.size(); ++i)
            expected[i] = memory[i] = static_cast<char>(i * 31 >> 4);
          std::memmove(expected.data() + to, expected.data() + from, kSize);
          const bool write = opcode == Opcode::kWrite;
          const TransferRequest copy =
              request(opcode, memory.data() + (write ? from : to), SegmentHandle::kLocal,
                      memory.data() + (write ? to : from), kSize);
          if (submitted) {
            const auto batch = engine->submit({copy}, 60s);
            ASSERT_TRUE(batch);
            ASSERT_TRUE((*batch)->wait(60s));
            ASSERT_TRUE((*batch)->outcome().ok());
          } else {
            ASSERT_TRUE(engine->transfer({&copy, 1}, 60s).ok());
          }
          ASSERT_TRUE(memory == expected) << submitted << ' ' << to << ' ' << from;
        }
      }
    }
  }
}

// Memory that is taken back while threads copy into it: from then on they don't.
TEST(TransferEngine, TakesMemoryBackFromItsOwnCopies) {
  const auto engine = make();
  constexpr std::size_t kSize = 8u << 20;
  std::vector<char> source(kSize, 'w'), target(kSize);
  ASSERT_TRUE(engine->register_memory(source.data(), kSize));
  ASSERT_TRUE(engine->register_memory(target.data(), kSize));
  std::atomic<int> copies{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const TransferRequest copy =
          request(Opcode::kWrite, source.data(), SegmentHandle::kLocal, target.data(), kSize);
      while (!over)
        copies += engine->transfer({&copy, 1}, 10s).ok() ? 1 : 0;
    });
  }
  for (int round = 0; round < 20; ++round) {
    const int before = copies;
    while (copies < before + 2)
      std::this_thread::yield();
    ASSERT_TRUE(engine->unregister_memory(target.data(), 10s));
    std::fill(target.begin(), target.end(), static_cast<char>(round));
    for (int look = 0; look < 3; ++look) {
      ASSERT_EQ(std::count(target.begin(), target.end(), static_cast<char>(round)),
                static_cast<std::ptrdiff_t>(kSize));
      std::this_thread::yield();
    }
    ASSERT_TRUE(engine->register_memory(target.data(), kSize));
  }
  over = true;
  for (std::thread& thread : threads)
    thread.join();
}

TEST(TransferEngine, ShowsWhatItHasTakenOfItsBudget) {
  TransferOptions options;
  options.memory_budget = 8u << 20;
  const auto engine = make(options);
  const auto memory = engine->allocate_memory(6u << 20);
  ASSERT_TRUE(memory);
  const std::string text = engine->metrics();
  for (const char* row :
       {"mooncake_engine_memory_limit_bytes 8388608", "mooncake_engine_start_seconds ",
        "mooncake_engine_memory_bytes{use=\"buffers\"} 6291456",
        "mooncake_engine_memory_bytes{use=\"dead_mappings\"} 0", "mooncake_engine_held_bytes ",
        "mooncake_engine_closed_connections_total{reason=\"crowded_out\"} 0",
        "mooncake_engine_prepared_bytes_total 6291456"}) {
    EXPECT_NE(text.find(row), std::string::npos) << row << " is not in\n" << text;
  }
  const auto refused = engine->allocate_memory(3u << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().detail(),
            "mooncake-buffer asks for 4194304 bytes; of the 8388608 of memory_budget "
            "(MOONCAKE_MEMORY_BUDGET) 6291456 are in use (buffers 6291456)");
  EXPECT_TRUE(engine->free_memory(*memory));
  EXPECT_TRUE(engine->allocate_memory(8u << 20));
}

TEST(TransferEngine, TakesItsBudgetFromTheEnvironment) {
  ::setenv("MOONCAKE_MEMORY_BUDGET", "2MB", 1);
  const auto engine = make();
  ::unsetenv("MOONCAKE_MEMORY_BUDGET");
  EXPECT_TRUE(engine->allocate_memory(2u << 20));
  EXPECT_EQ(engine->allocate_memory(4096).error().code(), Code::kOutOfMemory);
}

TEST(TransferEngine, GivesMemoryOfItsOwn) {
  TransferOptions options;
  options.memory_budget = 4u << 20;
  const auto engine = make(options);
  const auto memory = engine->allocate_memory(3u << 20);
  ASSERT_TRUE(memory);
  std::memset(*memory, 1, 3u << 20);
  EXPECT_EQ(engine->allocate_memory(3u << 20).error().code(), Code::kOutOfMemory);
  char* const bytes = static_cast<char*>(*memory);
  const TransferRequest copy =
      request(Opcode::kWrite, bytes, SegmentHandle::kLocal, bytes + (2u << 20), 1000);
  EXPECT_TRUE(engine->transfer({&copy, 1}, 5s).ok());
  EXPECT_EQ(engine->free_memory(bytes + 1).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(engine->free_memory(*memory));
  EXPECT_FALSE(engine->free_memory(*memory));
  EXPECT_TRUE(engine->allocate_memory(3u << 20));
}

TEST(TransferEngine, FailsWhereNobodyListens) {
  const auto engine = make();
  std::string gone;
  {
    const auto other = make();
    gone = other->local_name();
  }
  EXPECT_EQ(engine->open_segment(gone, 2s).error().code(), Code::kUnreachable);
  EXPECT_EQ(engine->open_segment("nonsense", 2s).error().code(), Code::kSegmentNotFound);
}

TEST(TransferEngine, IsFoundThroughAMetastore) {
  TransferOptions options;
  options.metadata_server = "memory://transfer_engine_test";
  const auto one = make(options), two = make(options);
  EXPECT_TRUE(one->open_segment(two->local_name()));
  EXPECT_EQ(one->open_segment("127.0.0.1:1", 2s).error().code(), Code::kSegmentNotFound);
}

// Every call of the child fails with an error that says why, and its copy of the engine goes
// without waiting for threads that it doesn't have.
TEST(TransferEngine, IsRefusedToAForkedChild) {
  auto engine = make();
  std::vector<char> memory(4096);
  ASSERT_TRUE(engine->register_memory(memory.data(), memory.size()));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const TransferRequest copy =
        request(Opcode::kRead, memory.data(), SegmentHandle::kLocal, memory.data() + 10, 10);
    const TransferOutcome outcome = engine->transfer({&copy, 1}, 1s);
    if (outcome.status || outcome.status.error().code() != Code::kNotReady) ::_exit(1);
    const auto refused = [](const auto& result) {
      return !result && result.error().code() == Code::kNotReady &&
             result.error().message().find("fork") != std::string::npos;
    };
    if (!refused(engine->register_memory(memory.data(), 10))) ::_exit(2);
    if (!refused(engine->unregister_memory(memory.data()))) ::_exit(3);
    if (!refused(engine->allocate_memory(4096))) ::_exit(4);
    if (!refused(engine->open_segment("127.0.0.1:1"))) ::_exit(5);
    engine.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(engine->unregister_memory(memory.data()));
}

// A peer that accepts and says nothing keeps a call waiting; it ends when the engine goes.
TEST(TransferEngine, TheDestructorEndsCallsAndWaitsForThem) {
  SilentPeer peer;
  auto engine = make();
  Result<SegmentHandle> opened = fail(Code::kInternal);
  std::thread caller(
      [&opened, &peer, raw = engine.get()] { opened = raw->open_segment(peer.name(), 60s); });
  peer.accept();  // the call is under way
  const auto before = std::chrono::steady_clock::now();
  engine.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 4s);
  caller.join();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kCancelled) << opened.error().message();
}

// A metadata server that accepts and says nothing has three seconds for an answer; an engine that
// goes doesn't wait for it.
TEST(TransferEngine, TheDestructorEndsLookUps) {
  SilentPeer server;
  TransferOptions options;
  options.metadata_server = "http://" + server.name() + "/metadata";
  options.serve = false;  // so that nothing is published there
  auto engine = make(options);
  Result<SegmentHandle> opened = fail(Code::kInternal);
  std::thread caller([&opened, raw = engine.get()] { opened = raw->open_segment("name", 60s); });
  server.accept();  // the look-up is under way
  engine.reset();
  caller.join();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kCancelled) << opened.error().message();
}

}  // namespace
}  // namespace mooncake
