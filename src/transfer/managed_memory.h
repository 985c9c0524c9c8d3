// ManagedMemory: buffers of any size, cut from few large pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "mooncake/result.h"
#include "mooncake/transfer.h"

namespace mooncake::transfer {

// Buddies in slabs. A buffer up to 256 MiB takes the next class, 8 KiB * 2^k; what is larger is a
// slab of its own. Slabs grow with what is in use, from 64 MiB to 2 GiB; of those that have become
// empty, one is kept. Each buffer is open to peers by itself, from allocate() to free(). One that a
// peer was still copying into or out of when it was freed is in quarantine: its bytes are not given
// out again before that copy has ended. Nothing is written into the memory, whose peers may be
// hostile. Thread-safe; a call that needs a slab may block, and others wait for it.
class ManagedMemory {
 public:
  static constexpr std::uint64_t kSmallestClass = 8u << 10;
  static constexpr std::uint64_t kLargestClass = 256u << 20;
  static constexpr std::uint64_t kFirstSlab = 64u << 20;
  static constexpr std::uint64_t kLargestSlab = 2048ull << 20;

  // Whether nobody copies any more; asked now and then until it is true. None: nobody did.
  using Cleared = std::function<bool()>;
  // Where slabs come from and go to, and how peers are let into a buffer in them, and out again.
  struct Source {
    std::function<Result<void*>(std::uint64_t size)> allocate;
    std::function<void(void* slab)> free;
    std::function<Result<void>(void* buffer, std::uint64_t size)> open;
    std::function<Cleared(void* buffer)> close;  // from here on no copy begins
  };
  explicit ManagedMemory(Source source);
  // Slabs that are still there stay with the source.
  ~ManagedMemory();
  ManagedMemory(const ManagedMemory&) = delete;
  ManagedMemory& operator=(const ManagedMemory&) = delete;

  // kInvalidArgument for 0; the source's error when not even a slab of one buffer is to be had.
  Result<void*> allocate(std::uint64_t length);
  // kInvalidArgument for what is not allocated here, and for a length of another class.
  Result<void> free(void* buffer, std::uint64_t length);

  // Bytes in slabs, the large buffers included.
  std::uint64_t held() const;
  // Buffers that were freed while somebody was copying, and have not been looked at since he left.
  std::size_t quarantined() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Slabs that are pools of the engine, which must outlive it.
ManagedMemory::Source managed_source(TransferEngine& engine);

}  // namespace mooncake::transfer
