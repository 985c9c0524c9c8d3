#include "store/master/allocation/segment_allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace mooncake::store::master {

namespace {

// Ranges of the wanted size's own class may be too short by less than an eighth. A few are tried
// before a longer range is cut, and some more before giving up.
constexpr int kFirstTries = 8;
constexpr int kLastTries = 256;

}  // namespace

SegmentAllocator::SegmentAllocator(std::uint64_t units)
    : capacity_(std::min<std::uint64_t>(units, kMaxUnits)) {
  heads_.fill(kNone);
}

std::uint32_t SegmentAllocator::class_of(std::uint64_t units) {
  if (units < 8) return static_cast<std::uint32_t>(units);
  const auto top = static_cast<std::uint32_t>(std::bit_width(units) - 1);
  return (top - 2) * 8 + static_cast<std::uint32_t>(units >> (top - 3) & 7);
}

void SegmentAllocator::link(std::uint32_t node) {
  const std::uint32_t index = class_of(nodes_[node].units());
  const std::uint32_t head = heads_[index];
  nodes_[node].a = kNone;
  nodes_[node].b = head;
  if (head != kNone) nodes_[head].a = node;
  heads_[index] = node;
  filled_[index / 64] |= std::uint64_t{1} << (index % 64);
}

void SegmentAllocator::unlink(std::uint32_t node) {
  const Node& range = nodes_[node];
  if (range.b != kNone) nodes_[range.b].a = range.a;
  if (range.a != kNone) {
    nodes_[range.a].b = range.b;
    return;
  }
  const std::uint32_t index = class_of(range.units());
  assert(heads_[index] == node);
  heads_[index] = range.b;
  if (range.b == kNone) filled_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
}

// Joins a range with the one after it; neither is in a list.
void SegmentAllocator::absorb_next(std::uint32_t node) {
  const std::uint32_t gone = nodes_[node].after;
  nodes_[node].last = nodes_[gone].last;
  nodes_[node].after = nodes_[gone].after;
  if (nodes_[gone].after != kNone) nodes_[nodes_[gone].after].before = node;
  if (last_ == gone) last_ = node;
  nodes_.give_back(gone);
}

void SegmentAllocator::prepare(std::uint64_t units) {
  units = std::min(units, capacity_);
  if (units <= prepared_) return;
  const auto last = static_cast<std::uint32_t>(units - 1);
  if (is_free(last_)) {
    unlink(last_);
    nodes_[last_].last = last;
    link(last_);
  } else {
    const std::uint32_t node = nodes_.take();
    nodes_[node].first = static_cast<std::uint32_t>(prepared_);
    nodes_[node].last = last;
    nodes_[node].before = last_;
    (last_ == kNone ? first_ : nodes_[last_].after) = node;
    last_ = node;
    link(node);
  }
  prepared_ = units;
}

// The lowest class from `from` on that has a range; kNone when there is none.
std::uint32_t SegmentAllocator::next_class(std::uint32_t from) const {
  if (from >= kClasses) return kNone;
  std::uint32_t word = from / 64;
  std::uint64_t bits = filled_[word] & ~std::uint64_t{0} << (from % 64);
  while (bits == 0) {
    if (++word == filled_.size()) return kNone;
    bits = filled_[word];
  }
  return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
}

std::uint32_t SegmentAllocator::search_class(std::uint32_t index, std::uint64_t units,
                                             int tries) const {
  std::uint32_t node = heads_[index];
  while (node != kNone && tries-- > 0 && nodes_[node].units() < units)
    node = nodes_[node].b;
  return node != kNone && nodes_[node].units() >= units ? node : kNone;
}

std::uint32_t SegmentAllocator::search(std::uint64_t units) const {
  const std::uint32_t own = class_of(units);
  if (const std::uint32_t node = search_class(own, units, kFirstTries); node != kNone) return node;
  if (const std::uint32_t longer = next_class(own + 1); longer != kNone) return heads_[longer];
  return search_class(own, units, kLastTries);
}

std::optional<SegmentAllocator::Extent> SegmentAllocator::allocate(std::uint64_t units,
                                                                   std::uint32_t owner) {
  if (units == 0 || units > free_units()) return std::nullopt;
  const std::uint32_t node = search(units);
  if (node == kNone) return std::nullopt;
  unlink(node);
  if (nodes_[node].units() > units) {
    const std::uint32_t rest = nodes_.take();
    Node& cut = nodes_[node];
    Node& tail = nodes_[rest];
    tail.first = static_cast<std::uint32_t>(cut.first + units);
    tail.last = cut.last;
    tail.before = node;
    tail.after = cut.after;
    (cut.after == kNone ? last_ : nodes_[cut.after].before) = rest;
    cut.after = rest;
    cut.last = tail.first - 1;
    link(rest);
  }
  nodes_[node].a = owner;
  nodes_[node].b = kUsed;
  allocated_ += units;
  ++extents_;
  return Extent{nodes_[node].first, node};
}

void SegmentAllocator::free(std::uint32_t handle) {
  assert(in_use(handle));
  allocated_ -= nodes_[handle].units();
  --extents_;
  nodes_[handle].b = kNone;
  if (is_free(nodes_[handle].after)) {
    unlink(nodes_[handle].after);
    absorb_next(handle);
  }
  const std::uint32_t before = nodes_[handle].before;
  if (is_free(before)) {
    unlink(before);
    absorb_next(before);
    handle = before;
  }
  link(handle);
}

bool SegmentAllocator::fits_when_prepared(std::uint64_t units) const {
  const std::uint64_t tail = is_free(last_) ? nodes_[last_].units() : 0;
  return tail + (capacity_ - prepared_) >= units;
}

void SegmentAllocator::for_each(const std::function<void(std::uint32_t)>& visit) const {
  for (std::uint32_t node = first_; node != kNone;) {
    const std::uint32_t after = nodes_[node].after;
    if (!is_free(node)) visit(node);
    node = after;
  }
}

Result<void> SegmentAllocator::verify() const {
  std::uint64_t next = 0;
  std::uint64_t used_units = 0;
  std::uint64_t used = 0;
  std::uint64_t free_ranges = 0;
  std::uint32_t before = kNone;
  for (std::uint32_t node = first_; node != kNone; node = nodes_[node].after) {
    const Node& range = nodes_[node];
    if (range.first != next || range.last < range.first) {
      return fail(Code::kInternal, "allocator: ranges have a gap or overlap");
    }
    if (range.before != before) return fail(Code::kInternal, "allocator: neighbours disagree");
    if (is_free(node) && is_free(before)) {
      return fail(Code::kInternal, "allocator: two free ranges touch");
    }
    next = std::uint64_t{range.last} + 1;
    if (is_free(node)) {
      ++free_ranges;
    } else {
      ++used;
      used_units += range.units();
    }
    before = node;
  }
  if (next != prepared_ || before != last_) {
    return fail(Code::kInternal, "allocator: ranges do not end at the prepared limit");
  }
  if (used_units != allocated_ || used != extents_) {
    return fail(Code::kInternal, "allocator: sum of extents is wrong");
  }
  if (used + free_ranges != nodes_.in_use()) return fail(Code::kInternal, "allocator: node lost");
  return verify_lists(free_ranges);
}

Result<void> SegmentAllocator::verify_lists(std::uint64_t free_ranges) const {
  std::uint64_t listed = 0;
  for (std::uint32_t index = 0; index < kClasses; ++index) {
    const bool filled = (filled_[index / 64] >> (index % 64) & 1) != 0;
    if (filled != (heads_[index] != kNone))
      return fail(Code::kInternal, "allocator: bitmap is wrong");
    std::uint32_t before = kNone;
    for (std::uint32_t node = heads_[index]; node != kNone; node = nodes_[node].b) {
      if (!is_free(node) || nodes_[node].a != before || class_of(nodes_[node].units()) != index) {
        return fail(Code::kInternal, "allocator: a free range is in the wrong list");
      }
      before = node;
      if (++listed > free_ranges) return fail(Code::kInternal, "allocator: list has a loop");
    }
  }
  if (listed != free_ranges) return fail(Code::kInternal, "allocator: a free range is in no list");
  return {};
}

}  // namespace mooncake::store::master
