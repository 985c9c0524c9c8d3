// Fifo: what was published first goes first, whoever reads it.
#pragma once

#include <cstdint>

#include "store/master/eviction/held_aside.h"

namespace mooncake::store::master {

// A queue in order of publishing. Entries that are held when their turn comes wait aside, and are
// the first to go when their hold is over.
template <typename Store>
class Fifo final : public EvictionPolicy {
 public:
  explicit Fifo(Store store) : store_(store), aside_(store) {}

  void on_publish(std::uint32_t entry) override {
    store_.bits(entry) = 0;
    queue_.append(store_, entry);
  }
  void on_access(std::uint32_t) override {}
  void on_remove(std::uint32_t entry) override {
    if (aside_.has(entry)) return aside_.remove(entry);
    queue_.unlink(store_, entry);
  }

  std::uint32_t next_victim(std::uint64_t now) override {
    EntryQueue back;
    aside_.release(now, [&](std::uint32_t entry) { back.append(store_, entry); });
    queue_.prepend_all(store_, back);
    while (!queue_.empty() && store_.until(queue_.oldest) > now) {
      const std::uint32_t held = queue_.oldest;
      queue_.unlink(store_, held);
      aside_.add(held);
    }
    return queue_.oldest;
  }

  Result<std::uint64_t> verify() const override {
    MC_TRY(const std::uint64_t aside, aside_.verify());
    MC_TRY(const std::uint64_t queued, queue_.verify(store_, [&](std::uint32_t entry) {
      return store_.bits(entry) == 0 ? Result<void>{} : fail(Code::kInternal, "fifo: wrong bits");
    }));
    return aside + queued;
  }

 private:
  Store store_;
  EntryQueue queue_;
  HeldAside<Store> aside_;
};

}  // namespace mooncake::store::master
