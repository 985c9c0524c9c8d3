// Lru: the least recently used goes first.
#pragma once

#include <cstdint>

#include "store/master/eviction/entry_queue.h"

namespace mooncake::store::master {

// Two queues, each in order of last use: entries nobody has read since they were published, and
// entries that were read and are held for `hold` from their last use on. As all holds are of one
// length, when the oldest of the read ones is held, all of them are: no held entry is ever looked
// at twice, however many there are. Between the two oldest the last use decides.
template <typename Store>
class Lru final : public EvictionPolicy {
 public:
  Lru(Store store, std::uint64_t hold_ns) : store_(store), hold_(hold_ns) {}

  void on_publish(std::uint32_t entry) override { append(entry, kUnread); }
  void on_access(std::uint32_t entry) override {
    on_remove(entry);
    append(entry, kRead);
  }
  void on_remove(std::uint32_t entry) override {
    queues_[store_.bits(entry)].unlink(store_, entry);
  }

  std::uint32_t next_victim(std::uint64_t now) override {
    const std::uint32_t unread = queues_[kUnread].oldest;
    const std::uint32_t read = queues_[kRead].oldest;
    if (read == kNobody || store_.until(read) > now) return unread;
    if (unread == kNobody) return read;
    return store_.until(unread) <= store_.until(read) - hold_ ? unread : read;
  }

  Result<std::uint64_t> verify() const override {
    std::uint64_t count = 0;
    for (std::uint8_t which = 0; which < 2; ++which) {
      std::uint64_t last_use = 0;
      MC_TRY(const std::uint64_t queued, queues_[which].verify(store_, [&](std::uint32_t entry) {
        const bool in_order = store_.until(entry) >= last_use;
        last_use = store_.until(entry);
        return in_order && store_.bits(entry) == which
                   ? Result<void>{}
                   : fail(Code::kInternal, "lru: not in order of last use");
      }));
      count += queued;
    }
    return count;
  }

 private:
  static constexpr std::uint8_t kUnread = 0;
  static constexpr std::uint8_t kRead = 1;

  void append(std::uint32_t entry, std::uint8_t which) {
    store_.bits(entry) = which;
    queues_[which].append(store_, entry);
  }

  Store store_;
  const std::uint64_t hold_;
  EntryQueue queues_[2];
};

}  // namespace mooncake::store::master
