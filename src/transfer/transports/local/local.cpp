// The local transport: the target is this very engine's memory. Plain memory is copied on the
// caller's thread; what goes through the executor is copied there, in steps, under the same checks
// as a peer's access.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "memory/copy.h"
#include "transfer/access.h"
#include "transfer/cursor.h"
#include "transfer/transport.h"

namespace mooncake::transfer {
namespace local {
namespace {

constexpr std::uint64_t kStep = 8u << 20;        // bytes copied before other work has its turn
constexpr std::uint64_t kDirectStep = 1u << 20;  // on a caller's thread, before it looks around
constexpr std::uint64_t kSliceCost = 4096;       // of a slice, in bytes: checks cost, too

constexpr Capabilities kCapabilities = [] {
  Capabilities capabilities;
  capabilities.name = "local";
  capabilities.reach = Reach::kProcess;
  capabilities.bandwidth_bytes_per_second = 8e9;
  capabilities.latency = std::chrono::microseconds(1);
  capabilities.max_bytes_per_request = std::uint64_t{1} << 30;
  capabilities.max_ranges_per_request = 1u << 16;
  capabilities.guarded_reads = capabilities.guarded_writes = true;
  return capabilities;
}();

RemoteRange range_of(const Slice& slice) {
  RemoteRange range;
  range.address = slice.remote;
  range.length = slice.length;
  range.key = slice.key;
  range.guard = slice.guard;
  range.extent = slice.extent;
  return range;
}

bool are_apart(const std::byte* one, const std::byte* other, std::uint64_t size) {
  return one + size <= other || other + size <= one;
}

// One buffer that overlaps with its own target.
bool overlaps_itself(const Slice& slice) {
  return slice.local.size() == 1 &&
         !are_apart(slice.local.front().data(), reinterpret_cast<const std::byte*>(slice.remote),
                    slice.length);
}

// Plain memory, on the caller's thread. An unregistration waits for the copy, which looks for it
// after every step.
class LocalPath final : public DirectPath {
 public:
  LocalPath(const memory::Registry& registry, const base::Clock& clock)
      : registry_(registry), clock_(clock) {}
  void copy(std::span<Slice> slices, TimePoint deadline) override;
  void close() { closed_.store(true, std::memory_order_relaxed); }

 private:
  bool is_closed() const { return closed_.load(std::memory_order_relaxed); }
  // False when the rest is not to be tried.
  bool copy_one(Slice& slice, const memory::Use& use, TimePoint deadline);
  bool move_within(Slice& slice, const memory::Use& use, TimePoint deadline);

  const memory::Registry& registry_;
  const base::Clock& clock_;
  std::atomic<bool> closed_{false};
};

// As memmove does, in steps: from the end where the target lies behind the source.
bool LocalPath::move_within(Slice& slice, const memory::Use& use, TimePoint deadline) {
  auto* const here = slice.local.front().data();
  auto* const there = reinterpret_cast<std::byte*>(slice.remote);
  const bool write = slice.opcode == Opcode::kWrite;
  std::byte* const to = write ? there : here;
  const std::byte* const from = write ? here : there;
  for (std::uint64_t left = slice.length; left > 0;) {
    if (is_closed() || !use.live()) return true;
    if (clock_.now() >= deadline) return false;
    const std::uint64_t size = std::min(left, kDirectStep);
    const std::uint64_t offset = to < from ? slice.length - left : left - size;
    std::memmove(to + offset, from + offset, size);
    left -= size;
  }
  slice.code = Code::kOk;
  slice.way = kCapabilities.name;
  return true;
}

bool LocalPath::copy_one(Slice& slice, const memory::Use& use, TimePoint deadline) {
  if (overlaps_itself(slice)) return move_within(slice, use, deadline);
  BufferCursor local(slice.local);
  auto* const there = reinterpret_cast<std::byte*>(slice.remote);
  for (std::uint64_t offset = 0; offset < slice.length;) {
    if (is_closed() || !use.live()) return true;
    if (clock_.now() >= deadline) return false;
    const base::MutableBuffer piece = local.peek(kDirectStep);
    if (piece.empty()) return true;
    const bool write = slice.opcode == Opcode::kWrite;
    std::byte* const to = write ? there + offset : piece.data();
    const std::byte* const from = write ? piece.data() : there + offset;
    if (are_apart(to, from, piece.size())) {
      memory::copy_bytes(to, from, piece.size());
    } else {
      std::memmove(to, from, piece.size());
    }
    local.advance(piece.size());
    offset += piece.size();
  }
  slice.code = Code::kOk;
  slice.way = kCapabilities.name;
  return true;
}

void LocalPath::copy(std::span<Slice> slices, TimePoint deadline) {
  memory::Use use;
  bool in_time = true;
  for (Slice& slice : slices) {
    if (slice.code != Code::kNotReady || slice.guard != 0 || slice.length == 0) continue;
    const bool same = use && slice.remote >= use.region().base &&
                      slice.length <= use.region().length &&
                      slice.remote - use.region().base <= use.region().length - slice.length;
    if (!same) use = registry_.use(slice.remote, slice.length);
    if (!use || (slice.key != memory::RegionKey{} && slice.key != use.region().key)) continue;
    const bool read_only = use.region().permission == memory::Permission::kReadOnly;
    if (read_only && slice.opcode == Opcode::kWrite) continue;
    in_time = in_time && copy_one(slice, use, deadline);
    memory::store_fence();  // before `use` ends
    if (!in_time) slice.code = Code::kDeadlineExceeded;
  }
}

class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(const TransportContext& context)
      : context_(context),
        path_(std::make_shared<LocalPath>(context.registry, context.env.executor.clock())) {}

  const Capabilities& capabilities() const override { return kCapabilities; }
  bool reaches(const Peer& peer, std::string& why) const override {
    if (peer.same_process) return true;
    why = "the peer is another engine";
    return false;
  }
  Task<Result<void>> execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                             std::span<Slice> slices, TimePoint deadline,
                             os::CancelToken* cancel) override;
  // A copy ends with the call that makes it.
  Task<Result<void>> fence(const Peer&, AttemptId, TimePoint, os::CancelToken*) override {
    co_return Result<void>();
  }
  Task<Result<PinnedBytes>> pin(const Peer& peer, AttemptId id, const Slice& slice,
                                TimePoint deadline) override;
  std::shared_ptr<DirectPath> direct(const Peer& peer) override {
    return peer.same_process ? path_ : nullptr;
  }
  Task<void> stop() override {
    stopping_ = true;
    path_->close();
    co_return;
  }

 private:
  // How long a call may go on.
  struct Limit {
    TimePoint deadline;
    os::CancelToken* cancel;
  };
  Task<Code> write(const Slice& slice, Limit limit);
  Task<Code> read(const Slice& slice, Limit limit);
  // Counts what was done in this turn; when it is a turn's worth, lets others go first.
  Task<Code> pause(std::uint64_t cost, Limit limit);

  const TransportContext context_;
  const std::shared_ptr<LocalPath> path_;
  bool stopping_ = false;
  std::uint64_t done_in_turn_ = 0;
};

Task<Code> LocalTransport::pause(std::uint64_t cost, Limit limit) {
  done_in_turn_ += cost;
  if (done_in_turn_ >= kStep) {
    co_await context_.env.executor.yield();
    done_in_turn_ = 0;
    if (stopping_ || os::is_cancelled(limit.cancel)) co_return Code::kCancelled;
    if (context_.env.now() >= limit.deadline) co_return Code::kDeadlineExceeded;
  }
  co_return Code::kOk;
}

Task<Code> LocalTransport::write(const Slice& slice, Limit limit) {
  WriteAccess access(context_.registry, range_of(slice), slice.record, slice.record_key);
  BufferCursor from(slice.local);
  for (std::uint64_t offset = 0; access.code() == Code::kOk && offset < slice.length;) {
    const base::MutableBuffer piece = from.peek(kStep);
    if (access.may_write()) std::memmove(access.data() + offset, piece.data(), piece.size());
    from.advance(piece.size());
    offset += piece.size();
    const Code paused = co_await pause(piece.size(), limit);
    if (paused != Code::kOk && offset < slice.length) co_return paused;
  }
  co_return access.finish();
}

Task<Code> LocalTransport::read(const Slice& slice, Limit limit) {
  ReadAccess access(context_.registry, range_of(slice));
  BufferCursor to(slice.local);
  for (std::uint64_t offset = 0; offset < slice.length && access.may_read();) {
    const base::MutableBuffer piece = to.peek(kStep);
    std::memmove(piece.data(), access.data() + offset, piece.size());
    to.advance(piece.size());
    offset += piece.size();
    const Code paused = co_await pause(piece.size(), limit);
    if (paused != Code::kOk && offset < slice.length) co_return paused;
  }
  co_return access.finish();
}

Task<Result<void>> LocalTransport::execute(const Peer&, AttemptId, std::uint32_t,
                                           std::span<Slice> slices, TimePoint deadline,
                                           os::CancelToken* cancel) {
  const Limit limit{deadline, cancel};
  Code stopped = stopping_ ? Code::kCancelled : Code::kOk;
  for (Slice& slice : slices) {
    slice.code = stopped;
    if (stopped != Code::kOk) continue;
    slice.code =
        slice.opcode == Opcode::kWrite ? co_await write(slice, limit) : co_await read(slice, limit);
    const bool given_up = slice.code == Code::kCancelled || slice.code == Code::kDeadlineExceeded;
    stopped = given_up ? slice.code : co_await pause(kSliceCost, limit);
  }
  if (stopped != Code::kOk) co_return fail(stopped);
  co_return Result<void>();
}

Task<Result<PinnedBytes>> LocalTransport::pin(const Peer&, AttemptId, const Slice& slice,
                                              TimePoint) {
  if (stopping_) co_return fail(Code::kCancelled);
  ReadAccess access(context_.registry, range_of(slice));
  MC_CO_TRY(memory::PinnedRanges::Pin pin, access.pin());
  const std::span bytes(access.data(), slice.length);
  co_return PinnedBytes(bytes, std::make_shared<memory::PinnedRanges::Pin>(std::move(pin)));
}

std::unique_ptr<Transport> create(const TransportContext& context) {
  return std::make_unique<LocalTransport>(context);
}

}  // namespace
}  // namespace local

const TransportEntry& local_transport_entry() {
  static const TransportEntry entry{"local", &local::create};
  return entry;
}

}  // namespace mooncake::transfer
