// Batches that run behind their submitter: done is said when the last byte is in place and not
// before; a cancel, the deadline or the engine's end end them, and the handle tells it in every
// way; nothing is touched afterwards.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "mooncake/transfer.h"
#include "transfer/engine_testing.h"

namespace mooncake {
namespace {

using namespace transfer::testing;
using Batch = std::shared_ptr<TransferBatch>;

// Two engines, with memory of their own pools, and a word of its own in every eight bytes of
// theirs.
class SubmittedBatch : public testing::TestWithParam<const char*> {
 protected:
  void allocate(std::size_t size) {
    size_ = size;
    mine_ = static_cast<std::byte*>(*here_->allocate_memory(size));
    theirs_ = static_cast<std::byte*>(*there_->allocate_memory(size));
    for (std::size_t at = 0; at < size; at += 8) {
      const std::uint64_t word = at * 0x9E3779B97F4A7C15u + 1;
      std::memcpy(theirs_ + at, &word, 8);
    }
    std::memset(mine_, 0, size);
    target_ = *here_->open_segment(there_->local_name());
  }
  std::vector<TransferRequest> requests(Opcode opcode, std::size_t count) const {
    std::vector<TransferRequest> made;
    const std::size_t length = size_ / count;
    for (std::size_t i = 0; i < count; ++i)
      made.push_back(request(opcode, mine_ + i * length, target_, theirs_ + i * length, length));
    return made;
  }
  Batch submit(std::vector<TransferRequest> requests, TransferBatch::Milliseconds timeout = 60s) {
    return *here_->submit(std::move(requests), timeout);
  }
  bool equal() const { return std::memcmp(mine_, theirs_, size_) == 0; }

  std::unique_ptr<TransferEngine> here_ = make({}, GetParam());
  std::unique_ptr<TransferEngine> there_ = make({}, GetParam());
  std::size_t size_ = 0;
  std::byte* mine_ = nullptr;
  std::byte* theirs_ = nullptr;
  SegmentHandle target_{};
};

INSTANTIATE_TEST_SUITE_P(Paths, SubmittedBatch, testing::Values("tcp", "shm"),
                         [](const auto& with) { return std::string(with.param); });

// C31: the bytes are compared the moment it says done.
TEST_P(SubmittedBatch, IsDoneWhenTheLastByteIsThere) {
  constexpr std::size_t kDescriptors = 2000;
  for (const std::size_t length : {4096u, 96u}) {
    allocate(kDescriptors * length);
    for (int round = 0; round < 5; ++round) {
      std::memset(mine_, 0, size_);
      const Batch batch = submit(requests(Opcode::kRead, kDescriptors));
      while (!batch->done())
        std::this_thread::yield();
      ASSERT_TRUE(equal()) << "round " << round;
      ASSERT_EQ(batch->outcome().codes, std::vector<std::int32_t>(kDescriptors, 0));
      EXPECT_EQ(batch->outcome().bytes, size_);
      EXPECT_EQ(batch->outcome().bytes_by_path.begin()->first, GetParam());
    }
  }
}

// C25.
TEST_P(SubmittedBatch, TakesVeryManyRequests) {
  constexpr std::size_t kCount = 200'000;
  allocate(kCount * 64);
  const Batch batch = submit(requests(Opcode::kRead, kCount));
  ASSERT_TRUE(batch->wait(60s));
  EXPECT_TRUE(batch->outcome().ok()) << batch->outcome().status.error().message();
  EXPECT_EQ(batch->outcome().codes.size(), kCount);
  EXPECT_TRUE(equal());
  std::memset(mine_, 1, size_);
  const auto one = request(Opcode::kWrite, mine_, target_, theirs_, size_);
  EXPECT_TRUE(here_->transfer({&one, 1}, 60s).ok()) << "the peer stays usable";
  EXPECT_TRUE(equal());
}

TEST_P(SubmittedBatch, ACancelLeavesTheRestAlone) {
  allocate(64u << 20);
  const Batch batch = submit(requests(Opcode::kRead, 64));
  batch->cancel();
  ASSERT_TRUE(batch->wait(5s));
  const TransferOutcome& outcome = batch->outcome();
  std::memset(mine_, 0xEE, size_);
  std::uint64_t moved = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    if (outcome.codes[i] == 0)
      moved += size_ / 64;
    else
      EXPECT_EQ(outcome.codes[i], code_info(Code::kCancelled).transfer);
  }
  EXPECT_EQ(outcome.bytes, moved);
  if (!outcome.ok()) {
    EXPECT_EQ(outcome.status.error().code(), Code::kCancelled);
  }
  // Behind it on the same connection: what was late has arrived by then.
  std::vector<std::byte> other(8u << 20);
  ASSERT_TRUE(here_->register_memory(other.data(), other.size()));
  const auto next = request(Opcode::kRead, other.data(), target_, theirs_, other.size());
  EXPECT_TRUE(here_->transfer({&next, 1}, 10s).ok());
  EXPECT_TRUE(std::all_of(mine_, mine_ + size_, [](std::byte b) { return b == std::byte{0xEE}; }));
  batch->cancel();
}

TEST_P(SubmittedBatch, FailsEntryByEntry) {
  allocate(4096);
  std::vector<char> unknown(100);
  std::vector<TransferRequest> all = requests(Opcode::kRead, 1);
  all.push_back(request(Opcode::kRead, unknown.data(), target_, theirs_, 10));
  all.push_back(request(Opcode::kRead, mine_, target_, unknown.data(), 10));
  all.push_back(request(Opcode::kRead, mine_, static_cast<SegmentHandle>(77), theirs_, 10));
  const Batch batch = submit(all);
  ASSERT_TRUE(batch->wait(5s));
  EXPECT_EQ(batch->outcome().codes, (std::vector<std::int32_t>{0, -3, -3, -200}));
  EXPECT_EQ(batch->outcome().bytes, 4096u);
}

TEST_P(SubmittedBatch, TheDescriptorIsReadableOnceDone) {
  allocate(4u << 20);
  const Batch batch = submit(requests(Opcode::kRead, 128));
  pollfd waiting{batch->completion_fd(), POLLIN, 0};
  EXPECT_EQ(batch->completion_fd(), waiting.fd);
  ASSERT_EQ(::poll(&waiting, 1, 10'000), 1);
  EXPECT_TRUE(batch->done());
  EXPECT_TRUE(equal());
  const Batch small = submit(requests(Opcode::kRead, 128));
  ASSERT_TRUE(small->wait(10s));
  waiting.fd = small->completion_fd();
  EXPECT_EQ(::poll(&waiting, 1, 0), 1) << "made after the end";
}

class OpenBatch : public testing::Test {
 protected:
  // Waits for a peer that never answers.
  Batch submit(std::chrono::milliseconds timeout = 60s) {
    const SegmentHandle target = peer_.open_in(*engine_);
    return *engine_->submit({request(Opcode::kWrite, memory_.data(), target, memory_.data(), 100),
                             request(Opcode::kRead, memory_.data(), target, memory_.data(), 100)},
                            timeout);
  }
  void SetUp() override { ASSERT_TRUE(engine_->register_memory(memory_.data(), memory_.size())); }

  SilentPeer peer_;
  std::vector<char> memory_ = std::vector<char>(4096);
  std::unique_ptr<TransferEngine> engine_ = make();
};

TEST_F(OpenBatch, IsNotDone) {
  const Batch batch = submit();
  EXPECT_FALSE(batch->wait(1ms));
  EXPECT_FALSE(batch->done());
  EXPECT_TRUE(batch->outcome().codes.empty());
  EXPECT_EQ(batch->outcome().status.error().code(), Code::kBatchBusy);
  pollfd waiting{batch->completion_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
}

TEST_F(OpenBatch, EndsAtItsDeadline) {
  const Batch batch = submit(50ms);
  ASSERT_TRUE(batch->wait(5s));
  EXPECT_EQ(batch->outcome().status.error().code(), Code::kDeadlineExceeded);
}

TEST_F(OpenBatch, ACancelEndsAWaitUnderWay) {
  const Batch batch = submit(), other = submit();
  peer_.accept();
  const auto before = std::chrono::steady_clock::now();
  batch->cancel();
  ASSERT_TRUE(batch->wait(10s));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 4s);
  EXPECT_EQ(batch->outcome().codes.size(), 2u);
  EXPECT_EQ(batch->outcome().status.error().code(), Code::kCancelled);
  EXPECT_FALSE(other->done()) << "a cancel is of one batch";
}

TEST_F(OpenBatch, CallsBackOnceBeforeAndAfter) {
  const Batch batch = submit();
  std::atomic<int> called{0}, in_time{0};
  std::atomic<std::thread::id> where{};
  batch->on_done([&, raw = batch.get()] {
    where = std::this_thread::get_id();
    in_time += raw->done();
    ++called;
  });
  EXPECT_EQ(called, 0);
  batch->cancel();
  ASSERT_TRUE(batch->wait(10s));
  engine_.reset();  // the engine's thread ends behind the callback
  EXPECT_EQ(called, 1);
  EXPECT_EQ(in_time, 1);
  EXPECT_NE(where.load(), std::this_thread::get_id());
  batch->on_done([&] {
    where = std::this_thread::get_id();
    ++called;
  });
  EXPECT_EQ(called, 2);
  EXPECT_EQ(where.load(), std::this_thread::get_id());
}

// The next batch may be submitted where the last one ends.
TEST_F(OpenBatch, ACallbackMaySubmit) {
  std::atomic<int> ended{0};
  std::function<void()> next = [&] {
    char* const memory = memory_.data();
    const auto batch = *engine_->submit(
        {request(Opcode::kRead, memory, SegmentHandle::kLocal, memory + 1000, 100)}, 5s);
    batch->on_done([&] {
      if (++ended < 20) next();
    });
  };
  next();
  while (ended < 20)
    std::this_thread::yield();
  engine_.reset();
  EXPECT_EQ(ended, 20);
}

TEST_F(OpenBatch, TheEnginesEndIsTheBatches) {
  const Batch first = submit(), second = submit();
  const int fd = second->completion_fd();
  std::atomic<int> called{0};
  second->on_done([&called] { ++called; });
  peer_.accept();
  const auto before = std::chrono::steady_clock::now();
  engine_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 4s);
  for (const Batch& batch : {first, second}) {
    ASSERT_TRUE(batch->done());
    EXPECT_EQ(batch->outcome().codes.size(), 2u);
    EXPECT_EQ(batch->outcome().status.error().code(), Code::kCancelled);
    batch->cancel();
    EXPECT_TRUE(batch->wait(0ms));
  }
  EXPECT_EQ(called, 1);
  pollfd waiting{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 1);
}

// The batch goes on; its buffers and its end are nobody's business then.
TEST_F(OpenBatch, ADroppedHandleEndsNothing) {
  std::atomic<bool> done{false};
  const auto task = [this, &done] { submit(100ms)->on_done([&done] { done = true; }); };
  task();
  EXPECT_FALSE(done);
  engine_.reset();
  EXPECT_TRUE(done);
}

TEST_F(OpenBatch, AForkedChildCanDoNothingWithIt) {
  const Batch batch = submit();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    batch->cancel();
    batch->on_done([] { ::_exit(1); });
    if (batch->done() || batch->wait(60s) || batch->completion_fd() >= 0) ::_exit(2);
    if (engine_->submit({}, 1s)) ::_exit(3);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(batch->done());
}

// Batches of several threads, some of them cancelled, some still open when the engine goes; for
// ThreadSanitizer.
TEST_P(SubmittedBatch, IsThreadSafe) {
  constexpr std::size_t kThreads = 4, kSlots = 4;
  allocate(kThreads * kSlots * (512u << 10));
  const std::size_t slot = size_ / (kThreads * kSlots);
  std::vector<std::vector<Batch>> batches(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      std::vector<Batch>& own = batches[id];
      for (std::size_t i = 0; i < 60; ++i) {
        if (i >= kSlots) own[i - kSlots]->wait(60s);
        const std::size_t at = (id * kSlots + i % kSlots) * slot;
        const std::size_t length = i % 2 ? 100 : slot;
        own.push_back(submit({request(Opcode::kRead, mine_ + at, target_, theirs_ + at, length)}));
        if (i % 3 == 0) own.back()->cancel();
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  here_.reset();
  for (const auto& all : batches) {
    for (const Batch& batch : all)
      EXPECT_TRUE(batch->done());
  }
}

}  // namespace
}  // namespace mooncake
