#include "memory/pool.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace mooncake::memory {

namespace {

constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kSmallPage = 4096;
constexpr std::uint64_t kStep = 8u << 20;  // prepared at once

// Newer than the C library's headers may be.
constexpr int kPopulateWrite = 23;         // MADV_POPULATE_WRITE, Linux 5.14
constexpr int kCollapse = 25;              // MADV_COLLAPSE, Linux 6.1
constexpr unsigned kHuge2Mib = 21u << 26;  // MFD_HUGE_2MB

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Makes a page present for writing without changing it, whoever else may use it.
void touch(std::byte* page) {
  std::atomic_ref(reinterpret_cast<unsigned char&>(*page)).fetch_or(0, std::memory_order_relaxed);
}

// False when memory has run out (where the kernel can say so instead of killing us).
bool populate(std::byte* begin, std::uint64_t size, std::uint64_t page) {
  if (::madvise(begin, size, kPopulateWrite) == 0) return true;
  if (errno != EINVAL) return false;
  for (std::uint64_t at = 0; at < size; at += page)
    touch(begin + at);
  return true;
}

}  // namespace

Result<std::unique_ptr<Pool>> Pool::create(const Options& options) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 46;  // a third of the address space
  if (options.size == 0 || options.size > kLargest) {
    return fail(Code::kInvalidArgument,
                fmt::format("pool size {} is not in 1..{}", options.size, kLargest));
  }
  const std::uint64_t size =
      round_up(options.size, options.size < kHugePage ? kSmallPage : kHugePage);
  if (options.budget) {
    MC_CHECK(options.budget->take(options.use, size, options.name));
  }

  constexpr auto kWrite = os::OwnedMapping::PeersMay::kWrite;
  Result<os::OwnedMapping> memory = fail(Code::kNotSupported);
  auto backing = PageBacking::kSmall;
  if (options.reserved_huge_pages && size % kHugePage == 0) {
    memory = os::OwnedMapping::create(options.name, size, kWrite, MFD_HUGETLB | kHuge2Mib);
    if (memory) backing = PageBacking::kReservedHuge;
  }
  if (!memory) memory = os::OwnedMapping::create(options.name, size, kWrite);
  if (!memory) {
    if (options.budget) options.budget->give_back(options.use, size);
    return fail(std::move(memory).error().with_context(
        fmt::format("pool '{}' of {} bytes", options.name, size)));
  }
  auto pool = std::unique_ptr<Pool>(new Pool);
  pool->memory_ = *std::move(memory);
  pool->owner_ = ::getpid();
  pool->budget_ = options.budget;
  pool->use_ = options.use;
  pool->backing_ = backing;
  return pool;
}

Pool::~Pool() {
  if (::getpid() == owner_ && budget_) budget_->give_back(use_, size());
}

std::uint64_t Pool::prepare(std::uint64_t bytes, Effort effort) {
  std::uint64_t done = prepared_.load(std::memory_order_relaxed);
  const std::uint64_t goal = done + std::min(size() - done, round_up(bytes, kHugePage));
  while (done < goal) {
    const std::uint64_t step = std::min(kStep, goal - done);
    if (!prepare_step(done, step, effort)) break;
    done += step;
    prepared_.store(done, std::memory_order_release);
  }
  return done;
}

bool Pool::prepare_step(std::uint64_t offset, std::uint64_t size, Effort effort) {
  std::byte* const begin = data() + offset;
  if (backing() == PageBacking::kReservedHuge) return populate(begin, size, kHugePage);
  if (size < kHugePage || !collapse_) return populate(begin, size, kSmallPage);
  if (effort == Effort::kHugePages && collapse(begin, size)) return true;
  for (std::uint64_t at = offset; collapse_ && at < offset + size; at += kHugePage)
    small_.push_back(at);
  return populate(begin, size, kSmallPage);
}

// Several huge pages at a time: each call makes all processors empty their lists of pages first.
bool Pool::collapse(std::byte* begin, std::uint64_t size) {
  // One small page is enough for the kernel to have something to collapse.
  for (std::uint64_t at = 0; at < size; at += kHugePage) {
    if (!populate(begin + at, kSmallPage, kSmallPage)) return false;
  }
  if (::madvise(begin, size, kCollapse) != 0) {
    // Not known, or not allowed here, and it stays so. Else no huge page could be had just now.
    if (errno == EINVAL) collapse_ = false;
    return false;
  }
  if (!populate(begin, size, kHugePage)) return false;
  backing_.store(PageBacking::kCollapsedHuge, std::memory_order_relaxed);
  return true;
}

bool Pool::improve() {
  for (std::uint64_t done = 0; done < kStep && !small_.empty() && collapse_; done += kHugePage) {
    const std::uint64_t at = small_.back();
    small_.pop_back();
    static_cast<void>(collapse(data() + at, kHugePage));
  }
  return collapse_ && !small_.empty();
}

}  // namespace mooncake::memory
