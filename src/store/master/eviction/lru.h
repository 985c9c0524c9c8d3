// Lru: the least recently used goes first.
#pragma once

#include <cassert>
#include <cstdint>

#include "store/master/eviction/eviction_policy.h"

namespace mooncake::store::master {

// Two queues, each in order of last use: entries nobody has read since they were published, and
// entries that were read and are held for `hold` from their last use on. As all holds are of one
// length, when the oldest of the read ones is held, all of them are: no held entry is ever looked
// at twice, however many there are. Between the two oldest the last use decides.
//
// Store (a value): QueueLinks& links(entry); std::uint8_t& bits(entry);
//                  std::uint64_t until(entry): end of the hold, or for unread ones time of
//                  publishing.
template <typename Store>
class Lru final : public EvictionPolicy {
 public:
  Lru(Store store, std::uint64_t hold_ns) : store_(store), hold_(hold_ns) {}

  void on_publish(std::uint32_t entry) override { append(entry, kUnread); }
  void on_access(std::uint32_t entry) override {
    unlink(entry);
    append(entry, kRead);
  }
  void on_remove(std::uint32_t entry) override { unlink(entry); }

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
      std::uint32_t previous = kNobody;
      for (std::uint32_t entry = queues_[which].oldest; entry != kNobody; ++count) {
        if (store_.bits(entry) != which || store_.links(entry).previous != previous) {
          return fail(Code::kInternal, "lru: links are broken");
        }
        if (previous != kNobody && store_.until(previous) > store_.until(entry)) {
          return fail(Code::kInternal, "lru: not in order of last use");
        }
        previous = entry;
        entry = store_.links(entry).next;
      }
      if (queues_[which].newest != previous) return fail(Code::kInternal, "lru: end is lost");
    }
    return count;
  }

 private:
  static constexpr std::uint32_t kNobody = 0xFFFFFFFF;
  static constexpr std::uint8_t kUnread = 0;
  static constexpr std::uint8_t kRead = 1;
  struct Queue {
    std::uint32_t oldest = kNobody;
    std::uint32_t newest = kNobody;
  };

  void append(std::uint32_t entry, std::uint8_t which) {
    Queue& queue = queues_[which];
    store_.bits(entry) = which;
    store_.links(entry) = {kNobody, queue.newest};
    (queue.newest == kNobody ? queue.oldest : store_.links(queue.newest).next) = entry;
    queue.newest = entry;
  }
  void unlink(std::uint32_t entry) {
    Queue& queue = queues_[store_.bits(entry)];
    const QueueLinks links = store_.links(entry);
    (links.previous == kNobody ? queue.oldest : store_.links(links.previous).next) = links.next;
    (links.next == kNobody ? queue.newest : store_.links(links.next).previous) = links.previous;
    store_.links(entry) = {};
  }

  mutable Store store_;
  const std::uint64_t hold_;
  Queue queues_[2];
};

}  // namespace mooncake::store::master
