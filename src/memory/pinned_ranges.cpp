#include "memory/pinned_ranges.h"

#include <cassert>
#include <iterator>

namespace mooncake::memory {

std::shared_ptr<PinnedRanges> PinnedRanges::create(std::shared_ptr<const void> memory) {
  return std::shared_ptr<PinnedRanges>(new PinnedRanges(std::move(memory)));
}

PinnedRanges::Pin& PinnedRanges::Pin::operator=(Pin&& other) noexcept {
  Pin ended(std::move(*this));
  ranges_ = std::move(other.ranges_);
  begin_ = other.begin_;
  return *this;
}

PinnedRanges::Pin::~Pin() {
  if (ranges_) ranges_->remove(begin_);
}

PinnedRanges::Pin PinnedRanges::add(std::uint64_t begin, std::uint64_t end) {
  assert(begin < end);
  std::lock_guard lock(mutex_);
  Range& range = ranges_[begin];
  assert(range.pins == 0 || range.end == end);
  range.end = end;
  ++range.pins;
  return Pin(shared_from_this(), begin);
}

bool PinnedRanges::overlaps(std::uint64_t begin, std::uint64_t end) const {
  std::lock_guard lock(mutex_);
  auto it = ranges_.lower_bound(begin);
  if (it != ranges_.end() && it->first < end) return true;
  return it != ranges_.begin() && std::prev(it)->second.end > begin;
}

std::size_t PinnedRanges::size() const {
  std::lock_guard lock(mutex_);
  return ranges_.size();
}

void PinnedRanges::remove(std::uint64_t begin) {
  std::lock_guard lock(mutex_);
  const auto it = ranges_.find(begin);
  assert(it != ranges_.end());
  if (--it->second.pins == 0) ranges_.erase(it);
}

}  // namespace mooncake::memory
