// EvictionPolicy: which object goes next. The same classes run in the Master and in the trace
// simulator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mooncake/result.h"

namespace mooncake::store::master {

// An entry's place in its policy's queue.
struct QueueLinks {
  std::uint32_t next = 0xFFFFFFFF;
  std::uint32_t previous = 0xFFFFFFFF;
};

// Works on numbers of entries, whose links live with the entries. Entries may be held: until a time
// that their owner keeps, set before on_publish() and on_access(), they are not to be evicted. All
// holds are of one length. Each call is O(1), next_victim() amortised over the others: it looks at
// a held entry a bounded number of times in each hold, however often it is called. One thread.
//
// The policies are templates over a Store, a value through which they see an entry's parts:
//   QueueLinks& links(entry)       the policy's, like
//   std::uint8_t& bits(entry)
//   std::uint64_t until(entry)     ns: end of the hold; of one that nobody has read, when it was
//                                  published
//   std::uint64_t hash(entry)      of its key
//   std::uint64_t size(entry)      bytes
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // From now on the entry is a candidate. It is not held.
  virtual void on_publish(std::uint32_t entry) = 0;
  // A reader found the entry, which is held for the policy's hold time from now on.
  virtual void on_access(std::uint32_t entry) = 0;
  virtual void on_remove(std::uint32_t entry) = 0;
  // The next to go among those that are not held at `now` (ns, never less than before); 0xFFFFFFFF
  // when there is none. It stays a candidate until on_remove(), which counts as its eviction when
  // it comes next.
  virtual std::uint32_t next_victim(std::uint64_t now) = 0;

  // Number of candidates, after a check of links and order. O(all).
  virtual Result<std::uint64_t> verify() const = 0;
  // That grow with the number of candidates, beside the entries.
  virtual std::size_t memory_bytes() const { return 0; }
};

}  // namespace mooncake::store::master
