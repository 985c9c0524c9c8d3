// Gate: how processes of one host copy into and out of each other's memory, and how its owner takes
// the memory back. tests/models/gate_model.h proves the protocol; docs/formats.md, "Gate", has the
// layout of the two shared pages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mooncake/result.h"
#include "os/shared_mapping.h"

namespace mooncake::memory {

// One life of one registration, as descriptors name it: (index, generation) in one word, so that a
// slot is written and read whole.
enum class Pass : std::uint64_t { kNone = 0 };

struct GateTable;
struct SlotPage;

// The owner's side. Thread-safe.
class Gate {
 public:
  static Result<std::unique_ptr<Gate>> create();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // For a registration. kNone when the table is full: then peers have no direct way to it.
  Pass open();
  // From here on no copier enters under this pass; those that are inside may go on.
  void raise(Pass pass);
  // Whether no copier is inside under this (raised) pass.
  bool is_clear(Pass pass) const;
  // Ends a pass that is clear: its place may be given to another registration.
  void retire(Pass pass);
  // Nobody enters any more, under any pass.
  void close();
  // Whether no copier is inside at all.
  bool is_clear() const;

  // One page of slots for one peer process.
  class Peer {
   public:
    int fd() const { return memory_.fd(); }
    std::uint64_t size() const { return memory_.size(); }

   private:
    friend class Gate;
    explicit Peer(os::OwnedMapping memory) : memory_(std::move(memory)) {}
    os::OwnedMapping memory_;
  };
  Result<std::shared_ptr<Peer>> add_peer();
  // Its process has exited, or has given the page up: what its slots say is void.
  void remove_peer(const std::shared_ptr<Peer>& peer);
  std::size_t peers() const;

  int table_fd() const { return table_memory_.fd(); }
  std::uint64_t table_size() const { return table_memory_.size(); }

 private:
  explicit Gate(os::OwnedMapping table);

  os::OwnedMapping table_memory_;
  GateTable* const table_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Peer>> peers_;  // guarded by mutex, as all below
  std::vector<std::uint32_t> free_;
  std::uint32_t fresh_ = 0;  // indices from here on were never given out
};

// The copier's side: another process's gate. Thread-safe.
class PeerGate {
 public:
  // Takes over neither fd. kProtocolError for anything that is not a gate of a version we know.
  static Result<std::unique_ptr<PeerGate>> map(int table_fd, std::uint64_t table_size, int slots_fd,
                                               std::uint64_t slots_size);

  // A few slots that one thread holds for one call. Empty when all are taken.
  class Slots {
   public:
    Slots() = default;
    Slots(Slots&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), at_(other.at_) {}
    Slots& operator=(Slots&&) = delete;
    ~Slots();

    explicit operator bool() const { return gate_ != nullptr; }
    // Admits this thread to memory under `pass`, until leave(). False when the pass is not the
    // registration's any more, or the owner is closing: then nothing is held.
    bool enter(Pass pass);
    // As many passes at once as there are slots.
    static constexpr std::size_t kMany = 8;
    bool full() const { return used_ == kMany; }
    // What was stored is visible before the slots are seen to be empty.
    void leave();

   private:
    friend class PeerGate;
    Slots(PeerGate* gate, std::uint32_t at) : gate_(gate), at_(at) {}
    PeerGate* gate_ = nullptr;
    std::uint32_t at_ = 0;
    std::uint32_t used_ = 0;
  };
  Slots claim();
  // Whether the registration that the pass stands for is still there, at this moment.
  bool admits(Pass pass) const;

 private:
  PeerGate(os::SharedMapping table, os::SharedMapping slots);

  const os::SharedMapping table_memory_, slots_memory_;
  const GateTable* const table_;
  SlotPage* const slots_;
  std::atomic<std::uint64_t> taken_{0};  // bit i: block i of the page is held
};

}  // namespace mooncake::memory
