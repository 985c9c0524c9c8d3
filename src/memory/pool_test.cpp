// Proves that pools are sealed, aligned, prepared, charged to their budget and not seen by a forked
// child, and that the preparer serves who waits first and lets go when asked.
#include "memory/pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>
#include <utility>
#include <vector>

namespace mooncake::memory {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

std::unique_ptr<Pool> make(std::uint64_t size, base::Budget* budget = nullptr) {
  Pool::Options options;
  options.size = size;
  options.budget = budget;
  auto pool = Pool::create(options);
  EXPECT_TRUE(pool) << pool.error().message();
  return pool ? *std::move(pool) : nullptr;
}

TEST(Pool, IsSealedFromBirth) {
  const auto pool = make(4 * kMiB);
  const int seals = ::fcntl(pool->fd(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_NE(::ftruncate(pool->fd(), 0), 0);
  EXPECT_NE(::ftruncate(pool->fd(), 8 * kMiB), 0);
  struct stat status {};
  ASSERT_EQ(::fstat(pool->fd(), &status), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), pool->size());
}

TEST(Pool, RoundsItsSize) {
  EXPECT_EQ(make(1)->size(), 4096u);
  EXPECT_EQ(make(kMiB + 1)->size(), kMiB + 4096);
  EXPECT_EQ(make(3 * kMiB)->size(), 4 * kMiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(make(kMiB)->data()) % (2 * kMiB), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(make(8 * kMiB)->data()) % (2 * kMiB), 0u);
}

TEST(Pool, RefusesBadSizes) {
  Pool::Options options;
  EXPECT_EQ(Pool::create(options).error().code(), Code::kInvalidArgument);
  options.size = ~std::uint64_t{0};
  EXPECT_EQ(Pool::create(options).error().code(), Code::kInvalidArgument);
}

TEST(Pool, ChargesItsBudgetWhileItLives) {
  base::Budget budget(6 * kMiB);
  {
    const auto pool = make(3 * kMiB, &budget);
    EXPECT_EQ(budget.used(base::MemoryUse::kSegments), 4 * kMiB);
    Pool::Options options;
    options.size = 3 * kMiB;
    options.budget = &budget;
    EXPECT_EQ(Pool::create(options).error().code(), Code::kOutOfMemory);
  }
  EXPECT_EQ(budget.used(), 0u);
}

bool is_present(const std::byte* page) {
  unsigned char present = 0;
  EXPECT_EQ(::mincore(const_cast<std::byte*>(page), 4096, &present), 0);
  return (present & 1) != 0;
}

TEST(Pool, PreparesInStepsAndKeepsContent) {
  const auto pool = make(8 * kMiB);
  EXPECT_EQ(pool->prepared(), 0u);
  pool->data()[3 * kMiB] = std::byte{7};
  EXPECT_EQ(pool->prepare(1), 2 * kMiB);
  EXPECT_TRUE(is_present(pool->data() + 2 * kMiB - 4096));
  EXPECT_FALSE(is_present(pool->data() + 5 * kMiB));
  EXPECT_EQ(pool->prepare(3 * kMiB), 6 * kMiB);
  EXPECT_EQ(pool->prepare(100 * kMiB), 8 * kMiB);
  EXPECT_EQ(pool->prepare(1), 8 * kMiB);
  for (std::uint64_t at = 0; at < pool->size(); at += 4096) {
    ASSERT_TRUE(is_present(pool->data() + at)) << at;
    ASSERT_EQ(pool->data()[at], at == 3 * kMiB ? std::byte{7} : std::byte{0}) << at;
  }
}

// Huge pages where the kernel has them; in a hurry small ones, which become huge later, with what
// lies in them.
TEST(Pool, ImprovesWhatWasPreparedQuickly) {
  const auto pool = make(20 * kMiB);
  EXPECT_FALSE(pool->improve());
  EXPECT_EQ(pool->prepare(20 * kMiB, Effort::kQuick), 20 * kMiB);
  EXPECT_EQ(pool->backing(), PageBacking::kSmall);
  for (std::uint64_t at = 0; at < pool->size(); at += 4096)
    pool->data()[at] = static_cast<std::byte>(at >> 12);
  int steps = 1;
  while (pool->improve())
    ++steps;
  EXPECT_LE(steps, 3);
  for (std::uint64_t at = 0; at < pool->size(); at += 4096)
    ASSERT_EQ(pool->data()[at], static_cast<std::byte>(at >> 12)) << at;
  // Whether this kernel collapses at all, another pool tells.
  const auto other = make(2 * kMiB);
  other->prepare(2 * kMiB);
  if (other->backing() == PageBacking::kCollapsedHuge) {
    EXPECT_EQ(pool->backing(), PageBacking::kCollapsedHuge);
  }
}

// A pool below the size of a huge page, and hugetlb where none may be reserved: small pages do it.
TEST(Pool, FallsBack) {
  const auto small = make(20'000);
  EXPECT_EQ(small->prepare(1), small->size());
  EXPECT_EQ(small->backing(), PageBacking::kSmall);

  Pool::Options options;
  options.size = 4 * kMiB;
  options.reserved_huge_pages = true;
  const auto pool = *Pool::create(options);
  EXPECT_EQ(pool->prepare(4 * kMiB), 4 * kMiB);
  std::memset(pool->data(), 1, pool->size());
}

// The child of a fork has no mapping of the pool (a write to it kills the child), and destroying
// its copy of the object doesn't unmap what the child may have put there.
TEST(Pool, IsNotInherited) {
  auto pool = make(2 * kMiB);
  pool->data()[0] = std::byte{1};
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::byte* const at = pool->data();
    unsigned char present = 0;
    if (::mincore(at, 4096, &present) == 0) ::_exit(1);
    void* const other = ::mmap(at, 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (other != at) ::_exit(2);
    pool.reset();
    if (::mincore(at, 4096, &present) != 0) ::_exit(3);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(pool->data()[0], std::byte{1});
}

TEST(Preparer, ReturnsWhenTheFirstBytesAreReadyAndGoesOn) {
  Preparer preparer;
  const auto pool = make(40 * kMiB);
  std::promise<void> whole;
  preparer.add(*pool, 4 * kMiB, [&, last = std::uint64_t{0}](std::uint64_t prepared) mutable {
    EXPECT_GT(prepared, last);
    last = prepared;
    if (prepared == pool->size()) whole.set_value();
  });
  EXPECT_GE(pool->prepared(), 4 * kMiB);
  whole.get_future().wait();
  EXPECT_EQ(pool->prepared(), pool->size());
  preparer.remove(*pool);
}

// While a first pool is stopped in the middle of its work, a second one arrives that somebody waits
// for: its first bytes come before the rest of the first pool.
TEST(Preparer, ServesWhoWaitsBeforeTheRest) {
  Preparer preparer;
  const auto first = make(80 * kMiB);
  const auto second = make(4 * kMiB);
  std::promise<void> reached, go_on;
  std::atomic<std::uint64_t> first_when_second_was_done{0};
  preparer.add(*first, 0, [&](std::uint64_t prepared) {
    if (prepared != 16 * kMiB) return;
    reached.set_value();
    go_on.get_future().wait();
  });
  reached.get_future().wait();
  std::thread waiter([&] {
    preparer.add(*second, second->size(),
                 [&](std::uint64_t) { first_when_second_was_done = first->prepared(); });
  });
  // Whether the waiter is in the queue by now or not, it is served before the first pool is whole:
  // at most the steps until it gets there come first. Nothing is done until go_on.
  EXPECT_EQ(first->prepared(), 16 * kMiB);
  go_on.set_value();
  waiter.join();
  EXPECT_EQ(second->prepared(), second->size());
  EXPECT_GE(first_when_second_was_done, 16 * kMiB);
  preparer.remove(*first);
  preparer.remove(*second);
}

// The preparer is stopped in the middle of its work: who waits for it, waits no longer than he may,
// and gets his memory as it is.
TEST(Preparer, NobodyWaitsForLong) {
  Preparer preparer({std::chrono::milliseconds(5), std::chrono::milliseconds(10)});
  const auto first = make(40 * kMiB), second = make(4 * kMiB);
  std::promise<void> reached, go_on;
  preparer.add(*first, 0, [&, once = true](std::uint64_t) mutable {
    if (!std::exchange(once, false)) return;
    reached.set_value();
    go_on.get_future().wait();
  });
  reached.get_future().wait();
  std::promise<void> whole;
  preparer.add(*second, second->size(), [&](std::uint64_t prepared) {
    if (prepared == second->size()) whole.set_value();
  });
  EXPECT_EQ(second->prepared(), 0u);
  EXPECT_EQ(preparer.totals().late, 1u);
  second->data()[0] = std::byte{1};
  go_on.set_value();
  whole.get_future().wait();
  EXPECT_GE(preparer.totals().bytes, second->size());
  EXPECT_GT(preparer.totals().time.count(), 0);
  preparer.remove(*first);
  preparer.remove(*second);
}

// Without time for huge pages what is waited for gets small ones, and huge ones afterwards.
TEST(Preparer, HurriesForThoseWhoWait) {
  Preparer preparer({std::chrono::milliseconds(0), std::chrono::hours(1)});
  const auto pool = make(8 * kMiB);
  bool hurried = true;
  preparer.add(*pool, pool->size(),
               [&](std::uint64_t) { hurried &= pool->backing() == PageBacking::kSmall; });
  EXPECT_EQ(pool->prepared(), pool->size());
  EXPECT_TRUE(hurried);
  const auto other = make(2 * kMiB);
  other->prepare(2 * kMiB);
  while (pool->backing() != other->backing())
    std::this_thread::yield();
  preparer.remove(*pool);
}

TEST(Preparer, LetsGoOfAPoolThatIsNotWhole) {
  Preparer preparer;
  for (int round = 0; round < 5; ++round) {
    auto pool = make(64 * kMiB);
    preparer.add(*pool, 1, {});
    preparer.remove(*pool);
    const std::uint64_t prepared = pool->prepared();
    EXPECT_EQ(pool->prepared(), prepared);
    pool.reset();
  }
}

TEST(Preparer, EndsInTheMiddleOfItsWork) {
  const auto pool = make(64 * kMiB);
  {
    Preparer preparer;
    preparer.add(*pool, 1, {});
  }
  EXPECT_GE(pool->prepared(), 2 * kMiB);
}

}  // namespace
}  // namespace mooncake::memory
