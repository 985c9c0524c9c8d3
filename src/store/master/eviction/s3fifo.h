// S3Fifo: three queues in order of publishing, so that what is read once only does not push out
// what is read again (Yang et al., SOSP '23).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "store/master/eviction/ghosts.h"
#include "store/master/eviction/held_aside.h"

namespace mooncake::store::master {

// New entries go to the small queue, which has a tenth of the bytes; from its end those that were
// read go to the main queue, the others out, and their hashes are remembered: who comes back goes
// to the main queue at once. From the main queue's end what was read goes round once more for each
// read, up to three. Held ones that are found at an end wait aside and come back to it.
template <typename Store>
class S3Fifo final : public EvictionPolicy {
 public:
  explicit S3Fifo(Store store) : store_(store), aside_(store) {}

  void on_publish(std::uint32_t entry) override {
    store_.bits(entry) = ghosts_.take(store_.hash(entry)) ? kMain : 0;
    bytes_ += store_.size(entry);
    ++count_;
    append(entry);
  }
  void on_access(std::uint32_t entry) override {
    if ((store_.bits(entry) & kReads) != kReads) ++store_.bits(entry);
  }
  void on_remove(std::uint32_t entry) override {
    const bool evicted = std::exchange(victim_, kNobody) == entry;
    if (evicted && (store_.bits(entry) & kMain) == 0) ghosts_.add(store_.hash(entry), count_);
    bytes_ -= store_.size(entry);
    --count_;
    if (aside_.has(entry)) return aside_.remove(entry);
    take_out(entry);
  }

  std::uint32_t next_victim(std::uint64_t now) override {
    take_back(now);
    for (;;) {
      const bool small = small_.bytes >= bytes_ / kSmallShare || main_.queue.empty();
      const std::uint32_t entry = (small && !small_.queue.empty() ? small_ : main_).queue.oldest;
      const bool held = entry != kNobody && store_.until(entry) > now;
      if (entry == kNobody || (!held && (store_.bits(entry) & kReads) == 0)) {
        return victim_ = entry;
      }
      take_out(entry);
      if (held) {
        aside_.add(entry);
        continue;
      }
      if ((store_.bits(entry) & kMain) == 0) {
        store_.bits(entry) = kMain;
      } else {
        --store_.bits(entry);
      }
      append(entry);
    }
  }

  Result<std::uint64_t> verify() const override {
    MC_TRY(const std::uint64_t aside, aside_.verify());
    MC_TRY(const std::uint64_t in_small, verify_part(small_, 0));
    MC_TRY(const std::uint64_t in_main, verify_part(main_, kMain));
    if (aside + in_small + in_main != count_) {
      return fail(Code::kInternal, "s3fifo: the number of candidates is wrong");
    }
    return count_;
  }
  std::size_t memory_bytes() const override { return ghosts_.memory_bytes(); }

 private:
  // Bits of an entry.
  static constexpr std::uint8_t kReads = 3;  // a number
  static constexpr std::uint8_t kMain = 4;
  static constexpr std::uint64_t kSmallShare = 10;
  struct Part {
    EntryQueue queue;
    std::uint64_t bytes = 0;
  };

  Part& part_of(std::uint32_t entry) { return (store_.bits(entry) & kMain) == 0 ? small_ : main_; }
  void append(std::uint32_t entry) {
    Part& part = part_of(entry);
    part.queue.append(store_, entry);
    part.bytes += store_.size(entry);
  }
  void take_out(std::uint32_t entry) {
    Part& part = part_of(entry);
    part.queue.unlink(store_, entry);
    part.bytes -= store_.size(entry);
  }
  void take_back(std::uint64_t now) {
    EntryQueue small;
    EntryQueue main;
    aside_.release(now, [&](std::uint32_t entry) {
      part_of(entry).bytes += store_.size(entry);
      (&part_of(entry) == &small_ ? small : main).append(store_, entry);
    });
    small_.queue.prepend_all(store_, small);
    main_.queue.prepend_all(store_, main);
  }
  Result<std::uint64_t> verify_part(const Part& part, std::uint8_t which) const {
    std::uint64_t bytes = 0;
    MC_TRY(const std::uint64_t queued, part.queue.verify(store_, [&](std::uint32_t entry) {
      bytes += store_.size(entry);
      return (store_.bits(entry) & ~kReads) == which
                 ? Result<void>{}
                 : fail(Code::kInternal, "s3fifo: in the wrong queue");
    }));
    if (bytes != part.bytes) return fail(Code::kInternal, "s3fifo: bytes are wrong");
    return queued;
  }

  Store store_;
  Part small_;
  Part main_;
  HeldAside<Store> aside_;
  Ghosts ghosts_;
  std::uint64_t bytes_ = 0;  // of all candidates
  std::uint64_t count_ = 0;
  std::uint32_t victim_ = kNobody;  // the last answer, if it is the last thing that happened
};

}  // namespace mooncake::store::master
