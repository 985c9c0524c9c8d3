// PinnedRanges: bytes of one segment that readers look at where they lie, and that stay as they are
// until each reader has let go. They belong to the memory, not to one mount of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace mooncake::memory {

// Thread-safe.
class PinnedRanges : public std::enable_shared_from_this<PinnedRanges> {
 public:
  // `memory` is what the ranges lie in; it stays as long as any pin does. May be null.
  static std::shared_ptr<PinnedRanges> create(std::shared_ptr<const void> memory = nullptr);
  PinnedRanges(const PinnedRanges&) = delete;
  PinnedRanges& operator=(const PinnedRanges&) = delete;

  // Ends with its destruction, on any thread.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept : ranges_(std::move(other.ranges_)), begin_(other.begin_) {}
    Pin& operator=(Pin&& other) noexcept;
    ~Pin();
    explicit operator bool() const { return ranges_ != nullptr; }

   private:
    friend class PinnedRanges;
    Pin(std::shared_ptr<PinnedRanges> ranges, std::uint64_t begin)
        : ranges_(std::move(ranges)), begin_(begin) {}
    std::shared_ptr<PinnedRanges> ranges_;
    std::uint64_t begin_ = 0;
  };

  // Bytes [begin, end), which are not empty. What is pinned already is pinned whole or not at all:
  // nothing else comes to lie there meanwhile.
  Pin add(std::uint64_t begin, std::uint64_t end);
  bool overlaps(std::uint64_t begin, std::uint64_t end) const;
  std::size_t size() const;  // ranges, each counted once

 private:
  struct Range {
    std::uint64_t end = 0;
    std::size_t pins = 0;
  };
  explicit PinnedRanges(std::shared_ptr<const void> memory) : memory_(std::move(memory)) {}
  void remove(std::uint64_t begin);

  const std::shared_ptr<const void> memory_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Range> ranges_;  // by first byte; disjoint; guarded by mutex_
};

}  // namespace mooncake::memory
