// HeldAside: held entries that a policy has come upon wait here until their hold is over, so that
// it need not look at them again and again.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <utility>

#include "store/master/eviction/entry_queue.h"

namespace mooncake::store::master {

// A wheel of time in digits of six bits: an entry waits in the slot of the highest digit in which
// the end of its hold differs from the time so far. When that slot's time comes it is over, or
// moves on to a lower digit: at most as often as its hold has digits (six for ten seconds), and
// once more for each time that it was read meanwhile. Holds end on the nanosecond. A read touches
// nothing here. One thread.
template <typename Store>
class HeldAside {
 public:
  // In the entry's bits while it waits; the others are the policy's.
  static constexpr std::uint8_t kAside = 0x80;

  explicit HeldAside(Store store) : store_(store) {}

  // Held beyond the time of the last release().
  void add(std::uint32_t entry) {
    store_.bits(entry) |= kAside;
    ++count_;
    place(entry);
  }
  bool has(std::uint32_t entry) const { return (store_.bits(entry) & kAside) != 0; }

  // O(slots) in the worst case, which no number of entries changes: one at the end of a slot's
  // queue has to ask the slots in use which is its own.
  void remove(std::uint32_t entry) {
    store_.bits(entry) &= static_cast<std::uint8_t>(~kAside);
    --count_;
    const QueueLinks links = store_.links(entry);
    if (links.previous != kNobody && links.next != kNobody) {
      return EntryQueue{}.unlink(store_, entry);  // inside its queue: only neighbours change
    }
    const Place place = place_of(entry);
    EntryQueue& queue = slots_[place.level][place.slot];
    queue.unlink(store_, entry);
    if (queue.empty()) occupied_[place.level] &= ~(std::uint64_t{1} << place.slot);
  }

  // Calls give_back(entry) for each whose hold is over at `now` (ns), in no strict order, after
  // taking it out. Time never goes back.
  template <typename GiveBack>
  void release(std::uint64_t now, GiveBack give_back) {
    for (std::uint32_t level = lowest(); level < kLevels; level = lowest()) {
      const auto slot = static_cast<std::uint32_t>(std::countr_zero(occupied_[level]));
      const std::uint64_t begin = begin_of(level, slot);
      if (begin > now) break;
      time_ = begin;
      occupied_[level] &= ~(std::uint64_t{1} << slot);
      const EntryQueue queue = std::exchange(slots_[level][slot], {});
      for (std::uint32_t entry = queue.oldest; entry != kNobody;) {
        const std::uint32_t next = store_.links(entry).next;
        if (store_.until(entry) > now) {
          place(entry);
        } else {
          store_.bits(entry) &= static_cast<std::uint8_t>(~kAside);
          --count_;
          give_back(entry);
        }
        entry = next;
      }
    }
    time_ = std::max(time_, now);
  }

  std::uint64_t size() const { return count_; }

  // Number of entries, after a check of links and slots. O(all).
  Result<std::uint64_t> verify() const {
    std::uint64_t count = 0;
    for (std::uint32_t level = 0; level < kLevels; ++level) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        const bool marked = (occupied_[level] >> slot & 1) != 0;
        if (marked == slots_[level][slot].empty()) {
          return fail(Code::kInternal, "eviction: a slot of time is wrongly marked");
        }
        MC_TRY(const std::uint64_t here, slots_[level][slot].verify(store_, [&](auto entry) {
          const bool in_time = store_.until(entry) >= begin_of(level, slot);
          return has(entry) && in_time ? Result<void>{}
                                       : fail(Code::kInternal, "eviction: aside for no hold");
        }));
        count += here;
      }
    }
    if (count != count_) return fail(Code::kInternal, "eviction: an entry aside is lost");
    return count;
  }

 private:
  static constexpr std::uint32_t kDigit = 6;  // bits
  static constexpr std::uint32_t kSlots = 1u << kDigit;
  static constexpr std::uint32_t kLevels = (64 + kDigit - 1) / kDigit;
  struct Place {
    std::uint32_t level = 0;
    std::uint32_t slot = 0;
  };

  void place(std::uint32_t entry) {
    const std::uint64_t until = store_.until(entry);
    assert(until > time_);
    const auto level = static_cast<std::uint32_t>(std::bit_width(until ^ time_) - 1) / kDigit;
    const auto slot = static_cast<std::uint32_t>(until >> (level * kDigit)) % kSlots;
    slots_[level][slot].append(store_, entry);
    occupied_[level] |= std::uint64_t{1} << slot;
  }

  // Every slot in use of a level comes before all of the next one, and after `time_`.
  std::uint32_t lowest() const {
    std::uint32_t level = 0;
    while (level < kLevels && occupied_[level] == 0)
      ++level;
    return level;
  }
  std::uint64_t begin_of(std::uint32_t level, std::uint32_t slot) const {
    const std::uint32_t shift = level * kDigit;
    const std::uint64_t above = level + 1 == kLevels ? 0 : time_ >> (shift + kDigit);
    return (above << kDigit | slot) << shift;
  }

  Place place_of(std::uint32_t entry) const {
    for (std::uint32_t level = 0; level < kLevels; ++level) {
      for (std::uint64_t bits = occupied_[level]; bits != 0; bits &= bits - 1) {
        const auto slot = static_cast<std::uint32_t>(std::countr_zero(bits));
        const EntryQueue& queue = slots_[level][slot];
        if (queue.oldest == entry || queue.newest == entry) return {level, slot};
      }
    }
    assert(false);
    return {};
  }

  Store store_;
  std::uint64_t time_ = 0;  // ns
  std::uint64_t count_ = 0;
  std::uint64_t occupied_[kLevels] = {};  // bit per slot
  EntryQueue slots_[kLevels][kSlots];
};

}  // namespace mooncake::store::master
