// Sieve: one queue in order of publishing, and a hand that goes through it from the oldest on,
// evicts what nobody has read since it last came by, and leaves the rest where it is (Zhang et al.,
// NSDI '24).
#pragma once

#include <cstdint>

#include "store/master/eviction/held_aside.h"

namespace mooncake::store::master {

// The hand passes an entry that was read once for each read at most, and takes those that are held
// out of the queue; they come back right behind it, as if it had just passed them.
template <typename Store>
class Sieve final : public EvictionPolicy {
 public:
  explicit Sieve(Store store) : store_(store), aside_(store) {}

  void on_publish(std::uint32_t entry) override {
    store_.bits(entry) = 0;
    queue_.append(store_, entry);
  }
  void on_access(std::uint32_t entry) override { store_.bits(entry) |= kRead; }
  void on_remove(std::uint32_t entry) override {
    if (aside_.has(entry)) return aside_.remove(entry);
    take_out(entry);
  }

  std::uint32_t next_victim(std::uint64_t now) override {
    aside_.release(now, [&](std::uint32_t entry) { queue_.insert(store_, entry, hand_); });
    while (!queue_.empty()) {
      if (hand_ == kNobody) hand_ = queue_.oldest;
      const std::uint32_t entry = hand_;
      const bool held = store_.until(entry) > now;
      if (!held && (store_.bits(entry) & kRead) == 0) return entry;
      store_.bits(entry) &= static_cast<std::uint8_t>(~kRead);
      if (held) {
        take_out(entry);
        aside_.add(entry);
      } else {
        hand_ = store_.links(entry).next;
      }
    }
    return kNobody;
  }

  Result<std::uint64_t> verify() const override {
    bool hand_seen = hand_ == kNobody;
    MC_TRY(const std::uint64_t aside, aside_.verify());
    MC_TRY(const std::uint64_t queued, queue_.verify(store_, [&](std::uint32_t entry) {
      hand_seen = hand_seen || entry == hand_;
      return store_.bits(entry) <= kRead ? Result<void>{}
                                         : fail(Code::kInternal, "sieve: wrong bits");
    }));
    if (!hand_seen) return fail(Code::kInternal, "sieve: the hand points at no candidate");
    return aside + queued;
  }

 private:
  static constexpr std::uint8_t kRead = 1;  // since the hand came by

  void take_out(std::uint32_t entry) {
    if (hand_ == entry) hand_ = store_.links(entry).next;
    queue_.unlink(store_, entry);
  }

  Store store_;
  EntryQueue queue_;
  std::uint32_t hand_ = kNobody;  // looked at next; none: the oldest
  HeldAside<Store> aside_;
};

}  // namespace mooncake::store::master
