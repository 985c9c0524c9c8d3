// Pool: memory that this product owns, as a sealed memfd, made ready in the background.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "mooncake/result.h"
#include "os/shared_mapping.h"

namespace mooncake::memory {

enum class PageBacking : std::uint8_t { kReservedHuge, kCollapsedHuge, kSmall };

// How pages are made present: as huge ones, which the kernel may take long to find; or as whatever
// it has at hand.
enum class Effort : std::uint8_t { kHugePages, kQuick };

// A fixed range of shared memory. Not movable: peers and registrations know its address.
// Sealed against shrinking and growing from birth; MADV_DONTFORK.
class Pool {
 public:
  struct Options {
    std::uint64_t size = 0;          // rounded up to 2 MiB, unless below that: then to 4 KiB
    std::string name = "mooncake";   // shows in /proc
    base::Budget* budget = nullptr;  // none = unlimited
    base::MemoryUse use = base::MemoryUse::kSegments;
    bool reserved_huge_pages = false;
  };
  static Result<std::unique_ptr<Pool>> create(const Options& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::byte* data() const { return memory_.data(); }
  std::uint64_t size() const { return memory_.size(); }
  std::span<std::byte> bytes() const { return {data(), size()}; }
  int fd() const { return memory_.fd(); }

  // Bytes from the start whose pages are present: touching them faults no more. Only grows.
  std::uint64_t prepared() const { return prepared_.load(std::memory_order_acquire); }
  // Makes the next `bytes` ready (rounded to 2 MiB steps); returns prepared(), which falls short
  // when memory has run out. One caller at a time, of this and of the next.
  std::uint64_t prepare(std::uint64_t bytes, Effort effort = Effort::kHugePages);
  // Puts huge pages in the place of small ones, where prepare() was quick or found none: up to
  // 8 MiB, each tried once. Users of the memory notice nothing. False when nothing is left to try.
  bool improve();
  // Of the pages that are prepared: huge as soon as some are.
  PageBacking backing() const { return backing_.load(std::memory_order_relaxed); }

 private:
  Pool() = default;
  bool prepare_step(std::uint64_t offset, std::uint64_t size, Effort effort);
  bool collapse(std::byte* begin, std::uint64_t size);

  os::OwnedMapping memory_;
  int owner_ = 0;  // process that made it
  base::Budget* budget_ = nullptr;
  base::MemoryUse use_{};
  bool collapse_ = true;              // worth trying
  std::vector<std::uint64_t> small_;  // offsets of 2 MiB that improve() is to try
  std::atomic<PageBacking> backing_{PageBacking::kSmall};
  std::atomic<std::uint64_t> prepared_{0};
};

// Prepares pools on a thread of its own: first what callers wait for, then the rest, each first
// come, first served; at last it looks for huge pages where there was no time for it. Thread-safe.
class Preparer {
 public:
  // Of a caller that waits: after `hurry` what he waits for is made ready quickly, after `longest`
  // he waits no more. The kernel clears a huge page in 0.3 ms, unless memory is short or comes from
  // a hypervisor first; then in 20.
  struct Patience {
    std::chrono::milliseconds hurry{100};
    std::chrono::milliseconds longest{250};
  };
  Preparer();
  explicit Preparer(Patience patience);
  ~Preparer();  // ends after the step under way

  // Blocks until the first `ready_first` bytes (or the whole pool) are ready, or can't be, or
  // patience is at its end; then goes on behind the caller's back. `progress` (may be empty) is
  // called on the preparer's thread after each step with the pool's prepared(). The pool must be
  // removed before it is destroyed.
  void add(Pool& pool, std::uint64_t ready_first, std::function<void(std::uint64_t)> progress);
  // Returns when the preparer touches the pool no more.
  void remove(Pool& pool);

  // Since the start: bytes made ready, the time that this took, and how often a caller's patience
  // ended first.
  struct Totals {
    std::uint64_t bytes = 0;
    std::chrono::nanoseconds time{};
    std::uint64_t late = 0;
  };
  Totals totals() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// First bytes that are ready when a pool is handed out.
inline constexpr std::uint64_t kReadyFirst = 64u << 20;

}  // namespace mooncake::memory
