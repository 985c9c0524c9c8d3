// EvictionPolicy: which object goes next. The same classes run in the Master and in the trace
// simulator.
#pragma once

#include <cstdint>

#include "mooncake/result.h"

namespace mooncake::store::master {

// An entry's place in its policy's queue.
struct QueueLinks {
  std::uint32_t next = 0xFFFFFFFF;
  std::uint32_t previous = 0xFFFFFFFF;
};

// Works on numbers of entries, whose links live with the entries. Entries may be held: until a time
// that their owner keeps, set before on_publish() and on_access(), they are not to be evicted. Each
// call is O(1), next_victim() too. One thread.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // From now on the entry is a candidate. It is not held.
  virtual void on_publish(std::uint32_t entry) = 0;
  // A reader found the entry, which is held for the policy's hold time from now on.
  virtual void on_access(std::uint32_t entry) = 0;
  virtual void on_remove(std::uint32_t entry) = 0;
  // The next to go among those that are not held at `now` (ns); 0xFFFFFFFF when there is none. It
  // stays a candidate until on_remove().
  virtual std::uint32_t next_victim(std::uint64_t now) = 0;

  // Number of candidates, after a check of links and order. O(all).
  virtual Result<std::uint64_t> verify() const = 0;
};

}  // namespace mooncake::store::master
