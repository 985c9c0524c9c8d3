// The copies themselves: in mapped memory, and by process_vm_*. Both in stays inside the peer's
// gate of at most 1 MiB.
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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
  const base::Clock& clock;  // not asked with patience
  const TimePoint deadline;
  const memory::Pass write_pass;              // beside the region's, for guarded writes
  const std::atomic<bool>* const called_off;  // set: with patience
  HostPeer::Trail trail{};
  bool over = false;  // the rest is not to be tried
  bool too_late = false;

  bool is_patient() const { return called_off != nullptr; }
  bool may_go_on(bool alive) {
    if (over) return false;
    too_late = called_off ? called_off->load() : clock.now() >= deadline;
    over = too_late || !alive;
    return !over;
  }
  void note_refused(memory::Pass pass, const AddressRange& range) {
    if (pass == trail.entered && range.end != 0) trail.taken_back.push_back(range);
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
    if (!target.holds(slice)) {
      slice.code = Code::kGenerationMismatch;
      return;
    }
    for (std::uint64_t offset = 0; offset < slice.length;) {
      if (!stay(target.pass, slice)) return;
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
    slice.code = target.holds(slice) ? Code::kOk : Code::kGenerationMismatch;
    slice.way = kMapped;
  }

 private:
  bool stay(memory::Pass pass, const Slice& slice) {
    if (inside_ == pass && left_ > 0) return true;
    slots_.leave();
    inside_ = {};
    if (!state_.may_go_on(peer_.alive())) return false;
    if (!slots_.enter(pass)) {
      state_.note_refused(pass, peer_.forget(pass, slice.remote));
      return false;
    }
    if (is_plain_write(slice)) state_.trail.entered = pass;
    if (state_.write_pass != memory::Pass::kNone && !slots_.enter(state_.write_pass)) {
      state_.over = true;
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
  void add(Slice& slice, const Target& target);
  void flush();

 private:
  // One slice's share of a call.
  struct Part {
    Slice* slice;
    const Target* target;
    std::uint64_t length;
    std::size_t local;  // the first of its pieces
    bool last;
  };

  bool is_full() const {
    return bytes_ == kStay || remotes_ == kMaxRanges || locals_ == kMaxRanges;
  }
  bool enter(memory::Pass pass, const Slice& slice);
  std::uint64_t add_part(BufferCursor& local, std::uint64_t left);
  ssize_t call_kernel(std::size_t first);
  std::size_t settle(std::size_t first, std::uint64_t moved);
  void leave_out(const Part& part);

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
  const Slice* left_out_ = nullptr;  // parts of it were
};

bool HostPeer::ProcessCopier::enter(memory::Pass pass, const Slice& slice) {
  const auto end = passes_.begin() + static_cast<std::ptrdiff_t>(entered_);
  if (std::find(passes_.begin(), end, pass) != end) return true;
  if (slots_.full()) flush();
  if (!state_.may_go_on(peer_.alive())) return false;
  const memory::Pass write_pass = state_.write_pass;
  if (entered_ == 0 && write_pass != memory::Pass::kNone) {
    state_.over = !slots_.enter(write_pass);
    if (state_.over) return false;
    passes_[entered_++] = write_pass;
  }
  if (!slots_.enter(pass)) {
    state_.note_refused(pass, peer_.forget(pass, slice.remote));
    return false;
  }
  if (is_plain_write(slice)) state_.trail.entered = pass;
  passes_[entered_++] = pass;
  return true;
}

void HostPeer::ProcessCopier::add(Slice& slice, const Target& target) {
  if (!target.holds(slice)) {
    slice.code = Code::kGenerationMismatch;
    return;
  }
  if (remotes_ > 0 && opcode_ != slice.opcode) flush();
  BufferCursor local(slice.local);
  for (std::uint64_t offset = 0; offset < slice.length;) {
    if (is_full()) flush();
    if (state_.over || !enter(target.pass, slice)) return;
    opcode_ = slice.opcode;
    const std::size_t piece = locals_;
    const std::uint64_t length = add_part(local, slice.length - offset);
    if (length == 0) return;
    remote_[remotes_] = {reinterpret_cast<void*>(slice.remote + offset), length};
    offset += length;
    parts_[remotes_++] = {&slice, &target, length, piece, offset == slice.length};
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
// The bytes of parts from `first` on that were moved; negative when nothing can be said of them.
ssize_t HostPeer::ProcessCopier::call_kernel(std::size_t first) {
  // Without patience its pages have been looked at just now.
  const bool lives = state_.is_patient()
                         ? peer_.is_same_program()
                         : !os::has_ended(peer_.process_.handle, peer_.process_.socket);
  if (!lives) {
    peer_.end();
    return -1;
  }
  const auto call = opcode_ == Opcode::kWrite ? ::process_vm_writev : ::process_vm_readv;
  const std::size_t local = parts_[first].local;
  const ssize_t moved = call(peer_.process_.pid, local_.data() + local, locals_ - local,
                             remote_.data() + first, remotes_ - first, 0);
  const int error = moved < 0 ? errno : 0;
  if (error == EPERM || error == ENOSYS) {
    peer_.process_vm_refused_.store(true, std::memory_order_relaxed);
  } else if (error == ESRCH || !peer_.is_same_program()) {
    peer_.end();
    return -1;
  }
  return error == EFAULT ? 0 : moved;
}

void HostPeer::ProcessCopier::flush() {
  std::size_t first = 0;
  if (remotes_ > 0 && !state_.over && !state_.is_patient() &&
      !peer_.pages_are_there(std::span(remote_).first(remotes_), opcode_)) {
    first = remotes_;
    leave_out(parts_[remotes_ - 1]);
  }
  while (first < remotes_ && !state_.over) {
    const ssize_t moved = call_kernel(first);
    if (moved < 0) {
      state_.over = true;
    } else {
      first = settle(first, static_cast<std::uint64_t>(moved));
    }
  }
  slots_.leave();
  entered_ = locals_ = remotes_ = 0;
  bytes_ = 0;
}

// The slice is not done when its other parts are copied: for those with patience, or for another
// way, which finds out what is wrong with it.
void HostPeer::ProcessCopier::leave_out(const Part& part) {
  left_out_ = part.last ? nullptr : part.slice;
}

// A slice is done with its last part, if all before were whole. One that the kernel could not copy
// is left out. The part that comes next.
std::size_t HostPeer::ProcessCopier::settle(std::size_t first, std::uint64_t moved) {
  for (std::size_t i = first; i < remotes_; ++i) {
    const Part& part = parts_[i];
    if (part.length > moved) {
      leave_out(part);
      return i + 1;
    }
    moved -= part.length;
    if (!part.last) continue;
    if (part.slice == std::exchange(left_out_, nullptr)) continue;
    part.slice->code = part.target->holds(*part.slice) ? Code::kOk : Code::kGenerationMismatch;
    part.slice->way = kProcessVm;
  }
  return remotes_;
}

// One thread's part in a call: slots of its own, and how far it may go.
class HostPeer::Copier {
 public:
  Copier(HostPeer& peer, const Terms& terms, memory::Pass entered)
      : peer_(peer),
        terms_(terms),
        slots_(peer.gate_->claim()),
        state_{.clock = peer.clock_,
               .deadline = terms.deadline,
               .write_pass = terms.write_pass,
               .called_off = terms.called_off} {
    state_.over = !slots_;
    state_.trail.entered = entered;
  }

  // Moves what it can of the slices, at most kWindow.
  void copy(std::span<Slice> window);
  bool is_over() const { return state_.over; }
  bool is_too_late() const { return state_.too_late; }
  void tell(Trail& trail) const {
    const auto& more = state_.trail.taken_back;
    if (state_.trail.entered != memory::Pass::kNone) trail.entered = state_.trail.entered;
    trail.taken_back.insert(trail.taken_back.end(), more.begin(), more.end());
  }

 private:
  HostPeer& peer_;
  const Terms terms_;
  memory::PeerGate::Slots slots_;
  CallState state_;
  std::array<Target, kWindow> targets_;
  std::unique_ptr<ProcessCopier> process_;  // once it is needed
};

void HostPeer::Copier::copy(std::span<Slice> window) {
  std::vector<Memory> held;
  peer_.resolve(window, terms_, targets_, held);
  bool others = false;
  {
    MappedCopier mapped(peer_, slots_, state_);
    for (std::size_t i = 0; i < window.size() && !state_.over; ++i) {
      if (targets_[i].mapped) mapped.copy(window[i], targets_[i]);
      others |= !targets_[i].mapped && targets_[i].pass != memory::Pass::kNone;
    }
  }
  if (!others || state_.over || !peer_.reads_processes()) return;
  if (!process_) process_ = std::make_unique<ProcessCopier>(peer_, slots_, state_);
  for (std::size_t i = 0; i < window.size() && !state_.over; ++i) {
    if (!targets_[i].mapped && targets_[i].pass != memory::Pass::kNone) {
      process_->add(window[i], targets_[i]);
    }
  }
  process_->flush();
}

// A call that two threads make together: each claims one share after the other, a few whole slices
// or a part of a large one, so that none waits for the other for longer than a share takes.
class HostPeer::SharedCopy final : public CopyCrew::Work {
 public:
  SharedCopy(HostPeer& peer, std::span<Slice> slices, std::uint64_t bytes, const Terms& terms,
             Trail& trail)
      : peer_(peer),
        slices_(slices),
        terms_(terms),
        entered_(trail.entered),
        trail_(trail),
        share_(std::clamp(bytes / kShares / kPage * kPage, kSmallestShare, kStay)),
        left_(slices.size()) {}

  std::uint64_t take_part() override;
  std::uint64_t do_alone() override {
    share_ = kStay;  // nobody waits for its end
    return take_part();
  }
  bool is_too_late() const { return too_late_; }

 private:
  struct Share {
    std::span<Slice> slices;
    std::size_t index = 0;  // of the slice of which it is a part
    Slice part;             // then the only one
    std::vector<base::MutableBuffer> local;
  };
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kShares = 8;
  static constexpr std::uint64_t kSmallestShare = 128u << 10;

  bool claim(Share& share);
  void cut(Share& share);
  // Returns the bytes that were copied.
  std::uint64_t settle(const Share& share);

  HostPeer& peer_;
  const std::span<Slice> slices_;
  const Terms terms_;
  const memory::Pass entered_;
  Trail& trail_;         // guarded by mutex
  std::uint64_t share_;  // bytes
  std::atomic<bool> too_late_{false};
  std::mutex mutex_;
  std::size_t next_ = 0;  // guarded by mutex, as all below
  std::uint64_t offset_ = 0;
  BufferCursor cursor_{std::span<const base::MutableBuffer>()};
  std::vector<std::uint64_t> left_;  // bytes not copied yet, of slices that were cut
};

std::uint64_t HostPeer::SharedCopy::take_part() {
  Copier copier(peer_, terms_, entered_);
  std::uint64_t copied = 0;
  for (Share share; !copier.is_over() && claim(share);) {
    copier.copy(share.slices);
    copied += settle(share);
  }
  if (copier.is_too_late()) too_late_ = true;
  std::lock_guard lock(mutex_);
  copier.tell(trail_);
  return copied;
}

bool HostPeer::SharedCopy::claim(Share& share) {
  std::lock_guard lock(mutex_);
  while (next_ < slices_.size() && offset_ == 0 && !is_wanted(slices_[next_], terms_))
    ++next_;
  if (next_ == slices_.size()) return false;
  const std::size_t first = next_;
  std::uint64_t bytes = 0;
  while (next_ < slices_.size() && offset_ == 0 && next_ - first < kWindow &&
         slices_[next_].length <= share_ - bytes) {
    bytes += slices_[next_++].length;
  }
  if (next_ == first) {
    cut(share);
  } else {
    share.slices = slices_.subspan(first, next_ - first);
  }
  return true;
}

void HostPeer::SharedCopy::cut(Share& share) {
  Slice& whole = slices_[next_];
  if (offset_ == 0) {
    cursor_ = BufferCursor(whole.local);
    left_[next_] = whole.length;
  }
  const std::uint64_t length = std::min(share_, whole.length - offset_);
  share.local.clear();
  for (std::uint64_t at = 0; at < length;) {
    const base::MutableBuffer piece = cursor_.peek(length - at);
    if (piece.empty()) break;
    share.local.push_back(piece);
    cursor_.advance(piece.size());
    at += piece.size();
  }
  share.index = next_;
  share.part = whole;
  share.part.code = Code::kNotReady;
  share.part.remote += offset_;
  share.part.length = length;
  share.part.local = share.local;
  share.slices = {&share.part, 1};
  offset_ += length;
  if (offset_ < whole.length) return;
  offset_ = 0;
  ++next_;
}

std::uint64_t HostPeer::SharedCopy::settle(const Share& share) {
  std::uint64_t copied = 0;
  for (const Slice& slice : share.slices)
    copied += slice.code == Code::kOk ? slice.length : 0;
  if (share.slices.data() != &share.part) return copied;
  std::lock_guard lock(mutex_);
  if (share.part.code == Code::kGenerationMismatch) slices_[share.index].code = share.part.code;
  left_[share.index] -= copied;
  if (left_[share.index] != 0) return copied;
  slices_[share.index].code = Code::kOk;
  slices_[share.index].way = share.part.way;
  return copied;
}

bool HostPeer::copy_alone(std::span<Slice> slices, const Terms& terms, Trail& trail) {
  Copier copier(*this, terms, trail.entered);
  for (std::size_t at = 0; at < slices.size() && !copier.is_over();) {
    const auto window = slices.subspan(at, std::min(kWindow, slices.size() - at));
    at += window.size();
    copier.copy(window);
  }
  copier.tell(trail);
  return !copier.is_too_late();
}

bool HostPeer::copy_together(std::span<Slice> slices, std::uint64_t bytes, const Terms& terms,
                             Trail& trail) {
  Target first{};
  std::vector<Memory> held;
  resolve(slices.first(1), terms, {&first, 1}, held);
  const unsigned kind = (first.mapped ? 2 : 0) + (slices.front().opcode == Opcode::kWrite ? 1 : 0);
  SharedCopy work(*this, slices, bytes, terms, trail);
  crew_.run(work, bytes, kind);
  return !work.is_too_late();
}

void HostPeer::give_up(std::span<Slice> slices, const Trail& trail) {
  for (Slice& slice : slices) {
    if (slice.code != Code::kNotReady || !is_plain_write(slice)) continue;
    const bool lost = std::ranges::any_of(
        trail.taken_back, [&](const AddressRange& range) { return range.meets(range_of(slice)); });
    if (lost) slice.code = Code::kGenerationMismatch;
  }
}

void HostPeer::copy_on(std::span<Slice> slices, const Terms& terms, Trail& trail) {
  look_for_end();
  std::uint64_t bytes = 0;
  for (const Slice& slice : slices)
    bytes += is_wanted(slice, terms) ? slice.length : 0;
  const bool in_time = crew_.may_help(bytes) ? copy_together(slices, bytes, terms, trail)
                                             : copy_alone(slices, terms, trail);
  if (!trail.taken_back.empty()) give_up(slices, trail);
  if (in_time) return;
  for (Slice& slice : slices) {
    if (slice.code == Code::kNotReady) slice.code = Code::kDeadlineExceeded;
  }
}

void HostPeer::copy(std::span<Slice> slices, TimePoint deadline) {
  Trail trail;
  copy(slices, deadline, trail);
}

void HostPeer::copy(std::span<Slice> slices, TimePoint deadline, Trail& trail) {
  copy_on(slices, {deadline}, trail);
}

void HostPeer::write_guarded(std::span<Slice> slices, memory::Pass pass, TimePoint deadline) {
  Trail none;  // of plain memory
  copy_on(slices, {deadline, pass}, none);
}

void HostPeer::copy_patiently(std::span<Slice> slices, memory::Pass write_pass,
                              const std::atomic<bool>& called_off, Trail& trail) {
  copy_alone(slices, {{}, write_pass, &called_off}, trail);
}

}  // namespace mooncake::transfer::shm
