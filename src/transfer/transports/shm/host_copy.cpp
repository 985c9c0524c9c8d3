// The copies themselves: in mapped memory, and by process_vm_*. Both in stays inside the peer's
// gate of at most 1 MiB.
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "memory/copy.h"
#include "transfer/cursor.h"
#include "transfer/transports/shm/host_peer.h"

namespace mooncake::transfer::shm {

namespace {

constexpr std::uint64_t kStay = 1u << 20;  // bytes copied between two looks at the gate
constexpr std::size_t kWindow = 256;       // slices whose places are looked up at once
constexpr std::size_t kMaxRanges = 1024;   // of one process_vm_* call (UIO_MAXIOV)

// How far a call may still go.
struct CallState {
  const base::Clock& clock;
  const TimePoint deadline;
  bool over = false;  // the rest is not to be tried
  bool too_late = false;

  bool may_go_on(bool alive) {
    if (over) return false;
    too_late = clock.now() >= deadline;
    over = too_late || !alive;
    return !over;
  }
};

}  // namespace

class HostPeer::MappedCopier {
 public:
  MappedCopier(HostPeer& peer, memory::PeerGate::Slots& slots, CallState& state)
      : peer_(peer), slots_(slots), state_(state) {}
  ~MappedCopier() { slots_.leave(); }
  MappedCopier(const MappedCopier&) = delete;
  MappedCopier& operator=(const MappedCopier&) = delete;

  void copy(Slice& slice, const Target& target) {
    BufferCursor local(slice.local);
    for (std::uint64_t offset = 0; offset < slice.length;) {
      if (!stay(target.pass, slice.remote)) return;
      const base::MutableBuffer piece = local.peek(left_);
      if (piece.empty()) return;
      std::byte* const there = target.mapped + offset;
      if (slice.opcode == Opcode::kWrite) {
        memory::copy_bytes(there, piece.data(), piece.size());
      } else {
        memory::copy_bytes(piece.data(), there, piece.size());
      }
      local.advance(piece.size());
      offset += piece.size();
      left_ -= piece.size();
    }
    slice.code = Code::kOk;
    slice.way = kMapped;
  }

 private:
  bool stay(memory::Pass pass, std::uint64_t address) {
    if (inside_ == pass && left_ > 0) return true;
    slots_.leave();
    inside_ = {};
    if (!state_.may_go_on(peer_.alive())) return false;
    if (!slots_.enter(pass)) {
      peer_.forget(pass, address);
      return false;
    }
    inside_ = pass;
    left_ = kStay;
    return true;
  }

  HostPeer& peer_;
  memory::PeerGate::Slots& slots_;
  CallState& state_;
  memory::Pass inside_{};
  std::uint64_t left_ = 0;  // bytes of this stay
};

class HostPeer::ProcessCopier {
 public:
  ProcessCopier(HostPeer& peer, memory::PeerGate::Slots& slots, CallState& state)
      : peer_(peer), slots_(slots), state_(state) {}
  ProcessCopier(const ProcessCopier&) = delete;
  ProcessCopier& operator=(const ProcessCopier&) = delete;

  // Adds the slice to the next call of the kernel, and makes that when it is full.
  void add(Slice& slice, memory::Pass pass);
  void flush();

 private:
  // One slice's share of a call.
  struct Part {
    Slice* slice;
    std::uint64_t length;
    bool last;
  };

  bool is_full() const {
    return bytes_ == kStay || remotes_ == kMaxRanges || locals_ == kMaxRanges;
  }
  bool enter(memory::Pass pass, std::uint64_t address);
  std::uint64_t add_part(BufferCursor& local, std::uint64_t left);
  ssize_t call_kernel();
  void settle(std::uint64_t moved);

  HostPeer& peer_;
  memory::PeerGate::Slots& slots_;
  CallState& state_;
  std::array<memory::Pass, memory::PeerGate::Slots::kMany> passes_;
  std::size_t entered_ = 0;  // of passes_
  Opcode opcode_{};
  std::uint64_t bytes_ = 0;
  std::array<iovec, kMaxRanges> local_, remote_;
  std::array<Part, kMaxRanges> parts_;
  std::size_t locals_ = 0, remotes_ = 0;
};

bool HostPeer::ProcessCopier::enter(memory::Pass pass, std::uint64_t address) {
  const auto end = passes_.begin() + static_cast<std::ptrdiff_t>(entered_);
  if (std::find(passes_.begin(), end, pass) != end) return true;
  if (slots_.full()) flush();
  if (!state_.may_go_on(peer_.alive())) return false;
  if (!slots_.enter(pass)) {
    peer_.forget(pass, address);
    return false;
  }
  passes_[entered_++] = pass;
  return true;
}

void HostPeer::ProcessCopier::add(Slice& slice, memory::Pass pass) {
  if (remotes_ > 0 && opcode_ != slice.opcode) flush();
  BufferCursor local(slice.local);
  for (std::uint64_t offset = 0; offset < slice.length;) {
    if (is_full()) flush();
    if (state_.over || !enter(pass, slice.remote)) return;
    opcode_ = slice.opcode;
    const std::uint64_t length = add_part(local, slice.length - offset);
    if (length == 0) return;
    remote_[remotes_] = {reinterpret_cast<void*>(slice.remote + offset), length};
    offset += length;
    parts_[remotes_++] = {&slice, length, offset == slice.length};
  }
}

// Local pieces for the next remote range; returns its length.
std::uint64_t HostPeer::ProcessCopier::add_part(BufferCursor& local, std::uint64_t left) {
  std::uint64_t length = 0;
  while (left > length && locals_ < kMaxRanges && bytes_ < kStay) {
    const base::MutableBuffer piece = local.peek(kStay - bytes_);
    if (piece.empty()) break;
    local_[locals_++] = {piece.data(), piece.size()};
    local.advance(piece.size());
    length += piece.size();
    bytes_ += piece.size();
  }
  return length;
}

// Who the pid is, is certain only while pidfd and connection say that it lives, before and after.
// Negative when nothing can be said of the bytes.
ssize_t HostPeer::ProcessCopier::call_kernel() {
  if (os::has_ended(peer_.process_.handle, peer_.process_.socket)) {
    peer_.end();
    return -1;
  }
  const auto call = opcode_ == Opcode::kWrite ? ::process_vm_writev : ::process_vm_readv;
  const ssize_t moved =
      call(peer_.process_.pid, local_.data(), locals_, remote_.data(), remotes_, 0);
  const int error = moved < 0 ? errno : 0;
  if (error == EPERM || error == ENOSYS) {
    peer_.process_vm_refused_.store(true, std::memory_order_relaxed);
  } else if (error == ESRCH || os::has_ended(peer_.process_.handle, peer_.process_.socket)) {
    peer_.end();
    return -1;
  }
  return moved;
}

void HostPeer::ProcessCopier::flush() {
  if (remotes_ > 0 && !state_.over) {
    const ssize_t moved = call_kernel();
    if (moved < 0) {
      state_.over = true;
    } else {
      settle(static_cast<std::uint64_t>(moved));
    }
  }
  slots_.leave();
  entered_ = locals_ = remotes_ = 0;
  bytes_ = 0;
}

// A slice is done with its last part; after a short count nothing more is tried, so that the parts
// before were whole.
void HostPeer::ProcessCopier::settle(std::uint64_t moved) {
  for (std::size_t i = 0; i < remotes_; ++i) {
    const Part& part = parts_[i];
    if (part.length > moved) {
      state_.over = true;
      return;
    }
    moved -= part.length;
    if (!part.last) continue;
    part.slice->code = Code::kOk;
    part.slice->way = kProcessVm;
  }
}

void HostPeer::copy(std::span<Slice> slices, TimePoint deadline) {
  look_for_end();
  memory::PeerGate::Slots slots = gate_->claim();
  if (!slots) return;
  CallState state{clock_, deadline};
  std::array<Target, kWindow> targets;
  for (std::size_t at = 0; at < slices.size() && !state.over;) {
    const auto window = slices.subspan(at, std::min(kWindow, slices.size() - at));
    at += window.size();
    std::vector<Memory> held;
    resolve(window, targets, held);
    bool others = false;
    {
      MappedCopier mapped(*this, slots, state);
      for (std::size_t i = 0; i < window.size() && !state.over; ++i) {
        if (targets[i].mapped) mapped.copy(window[i], targets[i]);
        others |= !targets[i].mapped && targets[i].pass != memory::Pass::kNone;
      }
    }
    if (!others || state.over || !reads_processes()) continue;
    const auto process = std::make_unique<ProcessCopier>(*this, slots, state);
    for (std::size_t i = 0; i < window.size() && !state.over; ++i) {
      if (!targets[i].mapped && targets[i].pass != memory::Pass::kNone) {
        process->add(window[i], targets[i].pass);
      }
    }
    process->flush();
  }
  if (!state.too_late) return;
  for (Slice& slice : slices) {
    if (slice.code == Code::kNotReady) slice.code = Code::kDeadlineExceeded;
  }
}

}  // namespace mooncake::transfer::shm
