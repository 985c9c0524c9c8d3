// EntryQueue: entries from the oldest to the newest, linked through themselves.
#pragma once

#include <cstdint>
#include <utility>

#include "mooncake/result.h"
#include "store/master/eviction/eviction_policy.h"

namespace mooncake::store::master {

inline constexpr std::uint32_t kNobody = 0xFFFFFFFF;

// Two numbers; `store` (see eviction_policy.h) has the links. An entry is in one queue at a time,
// and whoever takes it out says which. All O(1) but verify().
struct EntryQueue {
  std::uint32_t oldest = kNobody;
  std::uint32_t newest = kNobody;

  bool empty() const { return oldest == kNobody; }

  template <typename Store>
  void append(const Store& store, std::uint32_t entry) {
    store.links(entry) = {kNobody, newest};
    (newest == kNobody ? oldest : store.links(newest).next) = entry;
    newest = entry;
  }

  // Becomes the one before `at`; the newest when that is kNobody.
  template <typename Store>
  void insert(const Store& store, std::uint32_t entry, std::uint32_t at) {
    if (at == kNobody) return append(store, entry);
    const std::uint32_t previous = std::exchange(store.links(at).previous, entry);
    store.links(entry) = {at, previous};
    (previous == kNobody ? oldest : store.links(previous).next) = entry;
  }

  // All of `other`, in their order, before the oldest.
  template <typename Store>
  void prepend_all(const Store& store, EntryQueue& other) {
    if (other.empty()) return;
    store.links(other.newest).next = oldest;
    (oldest == kNobody ? newest : store.links(oldest).previous) = other.newest;
    oldest = other.oldest;
    other = {};
  }

  template <typename Store>
  void unlink(const Store& store, std::uint32_t entry) {
    const QueueLinks links = store.links(entry);
    (links.previous == kNobody ? oldest : store.links(links.previous).next) = links.next;
    (links.next == kNobody ? newest : store.links(links.next).previous) = links.previous;
    store.links(entry) = {};
  }

  // Number of entries, each of which `check(entry)` must accept. O(all).
  template <typename Store, typename Check>
  Result<std::uint64_t> verify(const Store& store, Check check) const {
    std::uint64_t count = 0;
    std::uint32_t previous = kNobody;
    for (std::uint32_t entry = oldest; entry != kNobody; entry = store.links(entry).next) {
      if (store.links(entry).previous != previous) {
        return fail(Code::kInternal, "eviction: links are broken");
      }
      MC_CHECK(check(entry));
      previous = entry;
      ++count;
    }
    if (newest != previous) return fail(Code::kInternal, "eviction: a queue's end is lost");
    return count;
  }
};

}  // namespace mooncake::store::master
