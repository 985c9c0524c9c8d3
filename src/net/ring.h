// Ring: a stream of bytes from one process of this host to another, through memory that both have
// mapped. The other side may write anything into it at any time: what counts here is kept here,
// what it says is checked, and bytes are copied out before they are looked at.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace mooncake::net {

// Shared; a wire format (docs/formats.md, "Rings"). Both counts are of bytes since the beginning;
// zeros are an empty ring.
struct RingState {
  alignas(64) std::atomic<std::uint64_t> written;  // by the writer alone
  alignas(64) std::atomic<std::uint64_t> read;     // by the reader alone
  // 1: rings the other side's bell when there is something again. Set by the one who sleeps,
  // cleared by the one who rings.
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  std::atomic<std::uint32_t> writer_sleeps;
};
static_assert(sizeof(RingState) == 192);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// One side of a ring. One thread each.
class RingEnd {
 public:
  // At most this many bytes are in a ring.
  static constexpr std::size_t kCapacity = 256u << 10;

  RingEnd(RingState& state, std::byte* bytes) : state_(state), bytes_(bytes) {}
  // The other side has claimed what can't be: nothing it says is believed any more.
  bool is_broken() const { return broken_; }

 protected:
  // `count` bytes from `position` on, in one or two pieces.
  std::array<std::span<std::byte>, 2> pieces(std::uint64_t position, std::size_t count) const {
    const std::size_t begin = position % kCapacity;
    const std::size_t first = std::min(count, kCapacity - begin);
    return {std::span(bytes_ + begin, first), std::span(bytes_, count - first)};
  }
  // So that a flag that was set before, and what the other side does then, are seen in this order
  // by both.
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  // True: the one who sleeps is to be rung for, by us.
  static bool take_sleeper(std::atomic<std::uint32_t>& sleeps) {
    fence();
    return sleeps.load(std::memory_order_relaxed) != 0 &&
           sleeps.exchange(0, std::memory_order_relaxed) != 0;
  }

  RingState& state_;
  std::byte* const bytes_;
  std::uint64_t position_ = 0;  // ours
  bool broken_ = false;
};

// Of both rings of a connection: a page for their states, then their bytes.
inline constexpr std::size_t kRingStates = 4096;
inline constexpr std::size_t kRingMemory = kRingStates + 2 * RingEnd::kCapacity;

class RingWriter : public RingEnd {
 public:
  using RingEnd::RingEnd;

  std::size_t room() {
    const std::uint64_t used = position_ - state_.read.load(std::memory_order_acquire);
    broken_ |= used > kCapacity;
    return broken_ ? 0 : kCapacity - used;
  }
  // Where the next `count` bytes belong, at most room().
  std::array<std::span<std::byte>, 2> places(std::size_t count) const {
    return pieces(position_, count);
  }
  // They are there. True: the reader sleeps, ring its bell.
  [[nodiscard]] bool publish(std::size_t count) {
    position_ += count;
    state_.written.store(position_, std::memory_order_release);
    return take_sleeper(state_.reader_sleeps);
  }
  // From here on the reader rings once there is room; look once more whether there is some.
  void sleep() {
    state_.writer_sleeps.store(1, std::memory_order_relaxed);
    fence();
  }
};

class RingReader : public RingEnd {
 public:
  using RingEnd::RingEnd;

  std::size_t available() {
    const std::uint64_t count = state_.written.load(std::memory_order_acquire) - position_;
    broken_ |= count > kCapacity;
    return broken_ ? 0 : static_cast<std::size_t>(count);
  }
  struct Taken {
    std::size_t size = 0;
    bool writer_sleeps = false;  // ring its bell
  };
  // Copies what is there and fits.
  [[nodiscard]] Taken take(std::span<std::byte> to) {
    Taken taken;
    taken.size = std::min(available(), to.size());
    for (const std::span<std::byte> piece : pieces(position_, taken.size)) {
      std::memcpy(to.data(), piece.data(), piece.size());
      to = to.subspan(piece.size());
    }
    position_ += taken.size;
    state_.read.store(position_, std::memory_order_release);
    taken.writer_sleeps = taken.size > 0 && take_sleeper(state_.writer_sleeps);
    return taken;
  }
  // From here on the writer rings when it has written; look once more at what is there.
  void sleep() {
    state_.reader_sleeps.store(1, std::memory_order_relaxed);
    fence();
  }
  void wake() { state_.reader_sleeps.store(0, std::memory_order_relaxed); }
};

}  // namespace mooncake::net
