#include "transfer/managed_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace mooncake::transfer {

namespace {

// The class of 8 KiB is order 0, a slab of 2 GiB order 18.
constexpr unsigned kOrders =
    std::countr_zero(ManagedMemory::kLargestSlab / ManagedMemory::kSmallestClass) + 1;
constexpr unsigned kOwn = kOrders;  // a slab of its own

// Each call looks at so many buffers in quarantine: a peer that stands still for long, with many
// slots taken, doesn't slow the others down.
constexpr std::size_t kLooks = 8;

constexpr std::uint64_t size_of(unsigned order) { return ManagedMemory::kSmallestClass << order; }

constexpr unsigned order_of(std::uint64_t length) {
  if (length > ManagedMemory::kLargestClass) return kOwn;
  const std::uint64_t size = std::bit_ceil(std::max(length, ManagedMemory::kSmallestClass));
  return static_cast<unsigned>(std::countr_zero(size / ManagedMemory::kSmallestClass));
}

}  // namespace

struct ManagedMemory::State {
  struct Live {
    unsigned order = 0;
    std::uint64_t size = 0;
  };

  mutable std::mutex mutex;
  Source source;                            // called under mutex, which guards all below
  std::map<std::uint64_t, unsigned> slabs;  // order by first address
  std::array<std::set<std::uint64_t>, kOrders> free_blocks;  // by order
  std::unordered_map<std::uint64_t, Live> live;
  struct Left {
    std::uint64_t buffer = 0;
    Live was;
    Cleared cleared;
  };
  std::deque<Left> quarantine;  // the next to be looked at first
  std::uint64_t held = 0;

  Result<void> add_slab(unsigned order);
  std::uint64_t take_block(unsigned order);
  void put_block(std::uint64_t block, unsigned order);
  void drop_second_empty_slab();
  void drop(std::uint64_t slab, std::uint64_t size);
  // Of bytes that nobody touches.
  void give_back(std::uint64_t buffer, const Live& was);
  void look_at_quarantine();
};

// As much again as there is; less when that can't be had.
Result<void> ManagedMemory::State::add_slab(unsigned order) {
  const std::uint64_t least = size_of(order);
  std::uint64_t size = std::max(least, std::bit_floor(std::clamp(held, kFirstSlab, kLargestSlab)));
  auto slab = source.allocate(size);
  while (!slab && size > least) {
    size /= 2;
    slab = source.allocate(size);
  }
  if (!slab) return fail(std::move(slab).error());
  const auto base = reinterpret_cast<std::uint64_t>(*slab);
  const auto whole = static_cast<unsigned>(std::countr_zero(size / kSmallestClass));
  slabs.emplace(base, whole);
  free_blocks[whole].insert(base);
  held += size;
  return {};
}

// 0 when there is none.
std::uint64_t ManagedMemory::State::take_block(unsigned order) {
  unsigned from = order;
  while (from < kOrders && free_blocks[from].empty())
    ++from;
  if (from == kOrders) return 0;
  const std::uint64_t block = *free_blocks[from].begin();
  free_blocks[from].erase(free_blocks[from].begin());
  while (from > order) {
    --from;
    free_blocks[from].insert(block + size_of(from));
  }
  return block;
}

void ManagedMemory::State::put_block(std::uint64_t block, unsigned order) {
  const auto& [base, whole] = *--slabs.upper_bound(block);
  for (; order < whole; ++order) {
    const std::uint64_t buddy = base + ((block - base) ^ size_of(order));
    if (free_blocks[order].erase(buddy) == 0) break;
    block = std::min(block, buddy);
  }
  free_blocks[order].insert(block);
  if (order == whole) drop_second_empty_slab();
}

// Of two that are empty the larger one goes.
void ManagedMemory::State::drop_second_empty_slab() {
  std::size_t empty = 0;
  std::pair<std::uint64_t, unsigned> largest;
  for (const auto& [base, whole] : slabs) {
    if (!free_blocks[whole].contains(base)) continue;
    if (empty++ == 0 || whole > largest.second) largest = {base, whole};
  }
  if (empty < 2) return;
  free_blocks[largest.second].erase(largest.first);
  slabs.erase(largest.first);
  drop(largest.first, size_of(largest.second));
}

void ManagedMemory::State::drop(std::uint64_t slab, std::uint64_t size) {
  held -= size;
  source.free(reinterpret_cast<void*>(slab));
}

void ManagedMemory::State::give_back(std::uint64_t buffer, const Live& was) {
  if (was.order == kOwn) {
    drop(buffer, was.size);
  } else {
    put_block(buffer, was.order);
  }
}

void ManagedMemory::State::look_at_quarantine() {
  for (std::size_t looks = std::min(kLooks, quarantine.size()); looks > 0; --looks) {
    Left left = std::move(quarantine.front());
    quarantine.pop_front();
    if (left.cleared()) {
      give_back(left.buffer, left.was);
    } else {
      quarantine.push_back(std::move(left));
    }
  }
}

ManagedMemory::ManagedMemory(Source source) : state_(std::make_unique<State>()) {
  state_->source = std::move(source);
}
ManagedMemory::~ManagedMemory() = default;

Result<void*> ManagedMemory::allocate(std::uint64_t length) {
  if (length == 0) return fail(Code::kInvalidArgument, "a buffer of 0 bytes");
  State& state = *state_;
  State::Live live{order_of(length), length};
  std::lock_guard lock(state.mutex);
  state.look_at_quarantine();
  std::uint64_t buffer = 0;
  if (live.order == kOwn) {
    MC_TRY(void* const slab, state.source.allocate(length));
    buffer = reinterpret_cast<std::uint64_t>(slab);
    state.held += length;
  } else {
    live.size = size_of(live.order);
    buffer = state.take_block(live.order);
    if (buffer == 0) {
      MC_CHECK(state.add_slab(live.order));
      buffer = state.take_block(live.order);
    }
  }
  if (auto opened = state.source.open(reinterpret_cast<void*>(buffer), live.size); !opened) {
    state.give_back(buffer, live);
    return fail(std::move(opened).error());
  }
  state.live.emplace(buffer, live);
  return reinterpret_cast<void*>(buffer);
}

Result<void> ManagedMemory::free(void* buffer, std::uint64_t length) {
  State& state = *state_;
  std::lock_guard lock(state.mutex);
  const auto found = state.live.find(reinterpret_cast<std::uint64_t>(buffer));
  if (found == state.live.end()) {
    return fail(Code::kInvalidArgument, fmt::format("{} is no buffer that is in use", buffer));
  }
  const auto [block, live] = *found;
  if (live.order != order_of(length)) {
    return fail(Code::kInvalidArgument,
                fmt::format("{} was not allocated with {} bytes", buffer, length));
  }
  state.live.erase(found);
  state.look_at_quarantine();
  Cleared cleared = state.source.close(buffer);
  if (cleared) {
    state.quarantine.push_back({block, live, std::move(cleared)});
  } else {
    state.give_back(block, live);
  }
  return {};
}

std::size_t ManagedMemory::quarantined() const {
  std::lock_guard lock(state_->mutex);
  return state_->quarantine.size();
}

std::uint64_t ManagedMemory::held() const {
  std::lock_guard lock(state_->mutex);
  return state_->held;
}

}  // namespace mooncake::transfer
