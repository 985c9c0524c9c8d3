// Proves that a helper takes part in large copies only, that nobody touches a copy once the call
// has returned, whenever the helper comes, and that there is no thread where there is no need of
// one.
#include "transfer/copy_crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace mooncake::transfer {
namespace {

constexpr std::uint64_t kLarge = 64u << 20;

// Shares that are counted, and must all be taken exactly once while the call is open.
class Shares : public CopyCrew::Work {
 public:
  explicit Shares(int count) : taken_(static_cast<std::size_t>(count)) {}
  ~Shares() override { EXPECT_EQ(inside_, 0); }

  std::uint64_t take_part() override {
    ++inside_;
    ++threads_;
    std::uint64_t bytes = 0;
    for (std::size_t i = next_++; i < taken_.size(); i = next_++) {
      EXPECT_TRUE(open_);
      ++taken_[i];
      bytes += 4096;
    }
    --inside_;
    return bytes;
  }
  void close() {
    EXPECT_EQ(inside_, 0);
    open_ = false;
    for (const auto& times : taken_)
      ASSERT_EQ(times, 1);
  }
  int threads() const { return threads_; }

 private:
  std::atomic<bool> open_{true};
  std::atomic<int> inside_{0}, threads_{0};
  std::atomic<std::size_t> next_{0};
  std::vector<std::atomic<int>> taken_;
};

// A copy in which the caller waits for the helper: it ends only if one takes part.
class Together : public CopyCrew::Work {
 public:
  std::uint64_t take_part() override {
    ++present_;
    while (present_ < 2)
      std::this_thread::yield();
    return kLarge;
  }

 private:
  std::atomic<int> present_{0};
};

// One that takes both much longer when a second thread comes.
class Slowed : public CopyCrew::Work {
 public:
  std::uint64_t take_part() override {
    const auto begun = Clock::now();
    ++present_;
    while (present_ < 2 && Clock::now() < begun + std::chrono::microseconds(100)) {
    }
    while (present_ > 1 && Clock::now() < begun + std::chrono::milliseconds(5)) {
    }
    return 4096;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<int> present_{0};
};

TEST(CopyCrew, AHelperTakesPartInALargeCopy) {
  CopyCrew crew(1);
  Shares first(3);
  crew.run(first, kLarge, 0);
  EXPECT_EQ(crew.threads(), 0u) << "what it takes alone is measured first";
  Together work;
  crew.run(work, kLarge, 0);
  EXPECT_EQ(crew.helped(), 1u);
  EXPECT_EQ(crew.threads(), 1u);
}

TEST(CopyCrew, SmallCopiesAndThoseWithoutHelpersStayWithTheirCaller) {
  CopyCrew crew(1), alone(0);
  for (int round = 0; round < 100; ++round) {
    Shares small(10), large(10);
    crew.run(small, CopyCrew::kSharedFrom - 1, 0);
    alone.run(large, kLarge, 0);
    small.close();
    large.close();
    EXPECT_EQ(small.threads() + large.threads(), 2);
  }
  EXPECT_EQ(crew.threads() + alone.threads(), 0u);
  EXPECT_EQ(crew.helped() + alone.helped(), 0u);
}

// Two threads make it fifty times as slow: its kind does without helpers from
// then on, but for a try now and then; another kind knows nothing of that.
TEST(CopyCrew, HelpersThatDoNotPayAreDoneWithout) {
  CopyCrew crew(1);
  constexpr int kCalls = 640;
  for (int round = 0; round < kCalls; ++round) {
    Slowed work;
    crew.run(work, kLarge, 1);
  }
  EXPECT_GE(crew.helped(), 1u);
  EXPECT_LE(crew.helped(), kCalls / 4u) << "other work may make a call alone look slow";
  const std::uint64_t before = crew.helped();
  Shares first(3);
  crew.run(first, kLarge, 2);
  Together work;
  crew.run(work, kLarge, 2);
  EXPECT_EQ(crew.helped(), before + 1);
}

// Whether the helper comes in time, late or never.
TEST(CopyCrew, NobodyTouchesACopyThatHasReturned) {
  CopyCrew crew(1);
  for (int round = 0; round < 5000; ++round) {
    Shares work(round % 50);
    crew.run(work, kLarge, 0);
    work.close();
  }
}

TEST(CopyCrew, ManyCallersShareFewHelpers) {
  CopyCrew crew(2);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        Shares work(20);
        crew.run(work, kLarge, 0);
        work.close();
      }
    });
  }
  for (std::thread& caller : callers)
    caller.join();
  EXPECT_LE(crew.threads(), 2u);
}

TEST(CopyCrew, EndsAtAnyTime) {
  for (int round = 0; round < 50; ++round) {
    CopyCrew crew(1);
    Shares work(round);
    crew.run(work, kLarge, 0);
  }
}

}  // namespace
}  // namespace mooncake::transfer
