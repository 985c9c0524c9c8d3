// HostPeer: another process of this host, as one that copies into and out of it sees it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/clock.h"
#include "memory/gate.h"
#include "memory/interval_index.h"
#include "os/local_socket.h"
#include "os/process_pages.h"
#include "os/shared_mapping.h"
#include "transfer/copy_crew.h"
#include "transfer/describe.h"
#include "transfer/transport.h"

namespace mooncake::transfer::shm {

inline constexpr std::string_view kMapped = "shm";
inline constexpr std::string_view kProcessVm = "process_vm";

// Mappings of all peers of one engine: what they take of its budget, and how many there are. The
// kernel gives a process 65530, which it needs for other things, too. Thread-safe.
class MappingAccount {
 public:
  static constexpr std::size_t kMost = 1u << 14;
  explicit MappingAccount(std::shared_ptr<base::Budget> budget, std::size_t most = kMost)
      : budget_(std::move(budget)), most_(most) {}
  MappingAccount(const MappingAccount&) = delete;
  MappingAccount& operator=(const MappingAccount&) = delete;

  // False when there are too many.
  bool open(std::uint64_t bytes);
  // Of a peer that has gone: from here on its memory lives by this mapping alone.
  void bury(std::uint64_t bytes);
  void close(std::uint64_t bytes, bool buried);

 private:
  const std::shared_ptr<base::Budget> budget_;
  const std::size_t most_;
  std::atomic<std::size_t> count_{0};
};

// A pool of the peer, mapped here.
class MappedPool {
 public:
  // kBusy when the account is full.
  static Result<std::shared_ptr<MappedPool>> open(std::shared_ptr<MappingAccount> account,
                                                  os::SharedMapping memory);
  ~MappedPool();
  MappedPool(const MappedPool&) = delete;
  MappedPool& operator=(const MappedPool&) = delete;

  const os::SharedMapping& memory() const { return memory_; }
  std::byte* data() const { return memory_.data(); }
  std::uint64_t size() const { return memory_.size(); }

  // Whether a copy up to this offset finds its pages in place, as far as the peer has any there.
  bool is_warm(std::uint64_t end) const { return end <= warm_to_.load(std::memory_order_relaxed); }
  void set_warm(std::uint64_t end) { warm_to_.store(end, std::memory_order_relaxed); }
  // Its owner has gone, or has given it up; copies may still hold it.
  void bury();

 private:
  MappedPool(std::shared_ptr<MappingAccount> account, os::SharedMapping memory)
      : account_(std::move(account)), memory_(std::move(memory)) {}
  const std::shared_ptr<MappingAccount> account_;
  const os::SharedMapping memory_;
  std::atomic<std::uint64_t> warm_to_{0};
  std::atomic<bool> buried_{false};
};

// What is still to be copied.
inline bool is_for_copy(const Slice& slice) {
  return slice.code == Code::kNotReady && slice.length != 0 &&
         slice.remote + slice.length > slice.remote;
}
inline bool is_guarded_write(const Slice& slice) {
  return slice.guard != 0 && slice.opcode == Opcode::kWrite;
}
struct AddressRange {
  std::uint64_t begin = 0, end = 0;
  bool operator==(const AddressRange&) const = default;
  bool meets(const AddressRange& other) const { return begin < other.end && other.begin < end; }
};
inline AddressRange range_of(const Slice& slice) {
  return {slice.remote, slice.remote + slice.length};
}

// One life of one peer. Memory of its pools is copied through a mapping, other memory by
// process_vm_readv and process_vm_writev; both inside its gate. Thread-safe.
class HostPeer final : public DirectPath {
 public:
  // Whether this process may use process_vm_* on the peer is found out by trying.
  struct Process {
    pid_t pid = 0;
    os::UniqueFd handle;     // pidfd
    os::LocalSocket socket;  // to it; readable at its end
  };
  // `guest`: how we are called in its host sessions.
  HostPeer(const base::Clock& clock, CopyCrew& crew, Process process,
           std::unique_ptr<memory::PeerGate> gate, base::Incarnation guest);
  base::Incarnation guest() const { return guest_; }

  // What a call has done in plain memory, for the parts of it that follow.
  struct Trail {
    memory::Pass entered{};                // the last under which it has written there
    std::vector<AddressRange> taken_back;  // regions that were, after it had written there
  };

  // Guarded reads are whole when the words say so afterwards; guarded writes are left alone. So is
  // what only the kernel could copy and whose pages are not there: it waits for them for longer
  // than any deadline, and nobody can call that off.
  void copy(std::span<Slice> slices, TimePoint deadline) override;
  void copy(std::span<Slice> slices, TimePoint deadline, Trail& trail);
  // Guarded writes that their owner has begun, under the pass that it gave.
  void write_guarded(std::span<Slice> slices, memory::Pass pass, TimePoint deadline);

  // Whether some of the slices are for copy_patiently(): not what is written into files, during
  // which the kernel may keep the peer's memory from everybody.
  bool needs_patience(std::span<const Slice> slices, memory::Pass write_pass = {});
  // As copy(), or write_guarded() where there is a pass, but waits for pages for any time, and
  // gives up between two calls of the kernel once it is called off. Uses this object and the slices
  // only: it may go on when the engine has ended.
  void copy_patiently(std::span<Slice> slices, memory::Pass write_pass,
                      const std::atomic<bool>& called_off, Trail& trail);
  // What was taken back while the call wrote there may be another's by now: to look it up again, as
  // is done with what was never known, would be to write over that.
  static void give_up(std::span<Slice> slices, const Trail& trail);

  // A call has left a write in the kernel, which may still land where these slices do: until
  // forget_left() no other is made there, or it would be overtaken.
  void note_left(std::span<const Slice> slices);
  void forget_left(std::span<const Slice> slices);

  // Ranges of slices that are still kNotReady because no region is known that has them.
  std::vector<AskedRange> unknown(std::span<const Slice> slices);
  // Why a slice was left: kRegionKeyMismatch when its key is not the region's any more, else
  // kTransferFailed: another way may do it.
  Code why_left(const Slice& slice);
  // What the peer has described. Pools that are named, and were never known, are in pools_wanted().
  void learn(std::span<const DescribedRegion> regions);
  std::vector<std::uint64_t> pools_wanted();
  // Whether the pool holds generation words, which are only to be read.
  bool holds_words(std::uint64_t pool) const;
  void add_pool(std::uint64_t pool, std::shared_ptr<MappedPool> memory);
  void drop_pool(std::uint64_t pool);

  // Where the bytes of a guarded slice lie here.
  struct Place {
    std::shared_ptr<MappedPool> memory;
    const std::byte* bytes = nullptr;
  };
  // kNotSupported when they lie in no mapped pool. kRegionKeyMismatch when the peer has taken back
  // the region that it described: another one may have its addresses by now.
  Result<Place> place_of(const Slice& slice);

  // From here on nothing is copied; what is under way ends with its chunk. Then its pools go.
  void end();
  bool has_ended() const override { return !alive(); }
  bool alive() const { return alive_.load(std::memory_order_acquire); }
  // False once the kernel has refused process_vm_*: only mapped memory can be reached.
  bool reads_processes() const { return !process_vm_refused_.load(std::memory_order_relaxed); }
  const os::LocalSocket& socket() const { return process_.socket; }
  const os::UniqueFd& process() const { return process_.handle; }

 private:
  using Memory = std::shared_ptr<MappedPool>;
  struct Region {
    std::uint64_t base = 0, length = 0;
    memory::RegionKey key{};
    memory::Pass pass{};
    memory::SharedPlace place;
    std::uint64_t words = 0;  // pool; 0 = plain memory
    bool has(const Slice& slice) const;
    bool is_of_kind(const Slice& slice) const { return (slice.guard != 0) == (words != 0); }
    // Guarded memory has none here: its key is the Master's to tell, and its generations don't come
    // twice.
    bool opens_to(const Slice& slice) const {
      return words != 0 || slice.key == memory::RegionKey{} || slice.key == key;
    }
  };
  using Word = std::atomic<std::uint64_t>;
  // Where the bytes of one slice are. No initial values: an array of them is made for each call.
  struct Target {
    memory::Pass pass;  // kNone: unknown, or not to be copied here
    std::byte* mapped;  // null: only in the peer's own address space
    const Word* word;   // of guarded memory: says what lies there
    // Of plain memory: always. Ask before a copy, and after it for all of its bytes.
    bool holds(const Slice& slice) const {
      std::atomic_thread_fence(std::memory_order_acquire);
      return !word || word->load(std::memory_order_acquire) == slice.guard;
    }
  };
  class MappedCopier;
  class ProcessCopier;
  class Copier;
  class SharedCopy;

  struct Terms {
    TimePoint deadline;
    memory::Pass write_pass{};                      // of guarded writes; kNone: none are made
    const std::atomic<bool>* called_off = nullptr;  // in place of the deadline; else with patience
  };
  static bool is_wanted(const Slice& slice, const Terms& terms) {
    return is_for_copy(slice) &&
           is_guarded_write(slice) == (terms.write_pass != memory::Pass::kNone);
  }
  void copy_on(std::span<Slice> slices, const Terms& terms, Trail& trail);
  // False when the deadline came first.
  bool copy_alone(std::span<Slice> slices, const Terms& terms, Trail& trail);
  bool copy_together(std::span<Slice> slices, std::uint64_t bytes, const Terms& terms,
                     Trail& trail);
  // Targets of these slices; `held` keeps mappings alive.
  void resolve(std::span<const Slice> slices, const Terms& terms, std::span<Target> targets,
               std::vector<Memory>& held);
  Target target_of(const Region& region, const Slice& slice, std::vector<Memory>& held) const;
  // Null when they are not mapped, or the slice names no extent.
  const Word* word_of(const Region& region, const Slice& slice, std::vector<Memory>& held) const;
  // Whether a copy of the peer's own address space waits for nobody.
  bool pages_are_there(std::span<const iovec> ranges, Opcode opcode) const;
  // Whether the process is there, and runs the program that it ran when it was met.
  bool is_same_program() const;
  // Asks the kernel whether the peer has gone, when it was not asked for a while: the watch on the
  // executor may be late, and what is written into a dead peer's memory is lost.
  void look_for_end();
  // Null where the region lies in no mapped pool.
  const Memory* pool_of(const Region& region) const;
  // Null when the peer contradicts itself.
  static std::byte* address_in(const MappedPool& pool, const Region& region, const Slice& slice);
  // The peer has taken back what this pass stood for. Gives the range, once; else an empty one.
  AddressRange forget(memory::Pass pass, std::uint64_t address);

  const base::Clock& clock_;
  CopyCrew& crew_;
  const Process process_;
  const std::unique_ptr<memory::PeerGate> gate_;
  const base::Incarnation guest_;
  std::atomic<bool> alive_{true};
  std::atomic<std::int64_t> looked_at_{0};  // nanoseconds: when the kernel was asked last
  std::atomic<bool> process_vm_refused_{false};
  std::optional<os::ProcessPages> pages_;    // empty: it is not known which are there
  std::atomic<std::size_t> left_writes_{0};  // the number of left_

  mutable std::mutex mutex_;
  memory::IntervalIndex<Region> regions_;  // guarded by mutex, as all below
  std::map<std::uint64_t, Memory> pools_;
  std::set<std::uint64_t> wanted_, gone_, words_;
  std::vector<AddressRange> left_;
};

}  // namespace mooncake::transfer::shm
