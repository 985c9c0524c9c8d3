// CopyCrew: threads that help callers with large copies.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace mooncake::transfer {

// A caller does his copy himself, as always; where two threads have turned out to be faster for
// copies of this kind and size, one helper takes a part in it. Thread-safe. All calls have returned
// before its end.
class CopyCrew {
 public:
  // A copy that two threads can make together.
  class Work {
   public:
    virtual ~Work() = default;
    // Copies one share after the other until none is left, or nothing more is to be tried; returns
    // how many bytes this thread has copied, and touches nothing of the work any more. On any
    // thread, on two at once.
    virtual std::uint64_t take_part() = 0;
    // The same for one thread that has it all to itself.
    virtual std::uint64_t do_alone() { return take_part(); }
  };

  // So many threads at most, each of which starts when it is first needed. Calls that come while
  // all are lent are not helped.
  explicit CopyCrew(unsigned helpers);
  ~CopyCrew();
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  // As many as the processors and the CPU quota of this process leave beside its callers.
  static unsigned helpers_by_quota();

  // Copies below this are never shared: dividing them costs as much as it brings.
  static constexpr std::uint64_t kSharedFrom = 512u << 10;
  bool may_help(std::uint64_t bytes) const { return bytes >= kSharedFrom && most_ != 0; }

  // Does `work`, about so many bytes, on this thread and perhaps with a helper. On return nobody
  // touches it any more. Copies of different `kind` (below kKinds) are measured apart.
  static constexpr unsigned kKinds = 4;
  void run(Work& work, std::uint64_t bytes, unsigned kind);

  // Calls in which a helper took a part, since the start; threads that there are now.
  std::uint64_t helped() const { return helped_.load(std::memory_order_relaxed); }
  unsigned threads() const;

 private:
  class Helper;
  // What has been learned of copies of one kind and size: nanoseconds for a byte, 0 = not tried.
  // A core that others use, a wake-up that takes long, memory that one thread exhausts: all show.
  struct Experience {
    double alone = 0, together = 0;
    std::uint32_t calls = 0;
  };
  static constexpr unsigned kSizes = 8;  // each up to twice the one before

  Experience& experience(std::uint64_t bytes, unsigned kind);
  Helper* lend(std::uint64_t bytes, unsigned kind);

  const unsigned most_;
  std::atomic<std::uint64_t> helped_{0};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Helper>> helpers_;  // guarded by mutex, as all below
  bool none_left_ = false;                        // no further thread can be had
  std::array<Experience, kKinds * kSizes> experience_;
};

}  // namespace mooncake::transfer
