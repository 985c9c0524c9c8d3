// A payload from a source is copied once, from the sender's memory into the receiver's, by the
// receiver's task.
#include "net/channel_pair.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <deque>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace mooncake::net {
namespace {

constexpr std::size_t kCopyStep = kMaxDataPayload;  // bytes between two turns of the executor

using Done = os::Completion<Result<void>>;

// A frame that waits for its receiver: its bytes, or where they are to be taken from.
struct QueuedFrame {
  FrameHeader header;
  base::TimePoint since{};
  std::vector<std::byte> bytes;
  PayloadSource* source = nullptr;
  Done* sender = nullptr;  // who waits until `source` has been read
  std::size_t taken = 0;

  std::size_t remaining() const { return header.payload_length - taken; }
};

struct End {
  std::deque<QueuedFrame> inbox;
  std::size_t inbox_bytes = 0;  // copied ones
  bool opened = false;          // the header of the first frame has been handed out
  os::Completion<bool>* receiver = nullptr;
  std::optional<Error> closed;  // why this end was closed
  std::uint8_t version = kFrameVersion;
  PeerInfo peer;
};

struct Link {
  explicit Link(os::Executor& executor_) : executor(executor_) {}

  os::Executor& executor;
  End ends[2];
};

Error gone() { return Error(Code::kConnectionLost, "in-process: the other end was closed"); }

void wake(End& end) {
  if (end.receiver) std::exchange(end.receiver, nullptr)->set(true);
}

void pop_front(End& end) {
  QueuedFrame& frame = end.inbox.front();
  if (frame.sender) frame.sender->set(Result<void>());
  end.inbox_bytes -= frame.bytes.size();
  end.inbox.pop_front();
  end.opened = false;
}

// Fills at least one byte of `to`; with zeros when the source's memory is out of reach.
std::size_t fill(QueuedFrame& frame, std::span<std::byte> to) {
  if (frame.source && !frame.source->live()) {
    std::memset(to.data(), 0, to.size());
    return to.size();
  }
  const base::ConstBuffer from =
      frame.source ? frame.source->next(to.size())
                   : base::ConstBuffer(frame.bytes).subspan(frame.taken, to.size());
  assert(!from.empty() && from.size() <= to.size());
  std::memcpy(to.data(), from.data(), from.size());
  return from.size();
}

// Copies at most one step of the first frame's payload.
std::size_t copy_step(End& end, PayloadSink& sink, std::size_t size) {
  QueuedFrame& frame = end.inbox.front();
  const std::size_t step = std::min(size, kCopyStep);
  std::size_t copied = 0;
  while (copied < step) {
    std::span<std::byte> to = sink.prepare(step - copied);
    assert(!to.empty() && to.size() <= step - copied);
    const std::size_t filled = fill(frame, to);
    sink.commit(filled);
    frame.taken += filled;
    copied += filled;
  }
  return copied;
}

Task<Result<FrameHeader>> receive_frame(std::shared_ptr<Link> link, int side) {
  End& end = link->ends[side];
  assert(!end.opened && "the payload of the frame before must be taken first");
  while (!end.closed && end.inbox.empty()) {
    if (link->ends[1 - side].closed) co_return fail(gone());
    assert(!end.receiver);
    os::Completion<bool> arrival(link->executor);
    end.receiver = &arrival;
    co_await arrival;
  }
  if (end.closed) co_return fail(*end.closed);
  const FrameHeader header = end.inbox.front().header;
  end.opened = true;
  if (header.payload_length == 0) pop_front(end);
  co_return header;
}

Task<Result<void>> receive_bytes(std::shared_ptr<Link> link, int side, PayloadSink& sink,
                                 std::size_t size) {
  End& end = link->ends[side];
  while (size > 0) {
    if (end.closed) co_return fail(*end.closed);
    if (end.inbox.empty()) co_return fail(gone());
    assert(end.opened && size <= end.inbox.front().remaining());
    size -= copy_step(end, sink, size);
    if (end.inbox.front().remaining() == 0) pop_front(end);
    if (size > 0) co_await link->executor.yield();
  }
  co_return Result<void>();
}

Result<void> check_size(const FrameHeader& header, std::size_t size) {
  const std::size_t limit = header.flags & kData ? kMaxDataPayload : kMaxControlPayload;
  if (size <= limit) return {};
  return fail(Code::kInvalidArgument, "frame of " + std::to_string(size) + " bytes, at most " +
                                          std::to_string(limit) + " are allowed");
}

class PairChannel final : public Channel {
 public:
  PairChannel(std::shared_ptr<Link> link, int side) : link_(std::move(link)), side_(side) {}
  ~PairChannel() override { close(Error(Code::kConnectionLost, "in-process: channel destroyed")); }

  Result<void> send(FrameHeader header, base::ConstBuffers payload) override;
  Task<Result<void>> send_from(FrameHeader header, PayloadSource& source,
                               std::size_t size) override {
    return send_source(link_, side_, header, source, size);
  }
  Backlog backlog() const override;
  Task<Result<FrameHeader>> receive() override { return receive_frame(link_, side_); }
  Task<Result<void>> receive_payload(PayloadSink& sink, std::size_t size) override {
    return receive_bytes(link_, side_, sink, size);
  }
  void set_version(std::uint8_t version) override { self().version = version; }
  void close(Error reason) override;
  bool closed() const override {
    const End& end = link_->ends[side_];
    return end.closed || (link_->ends[1 - side_].closed && end.inbox.empty());
  }
  const PeerInfo& peer() const override { return link_->ends[side_].peer; }

 private:
  static Result<void> enqueue(Link& link, int side, QueuedFrame frame);
  static Task<Result<void>> send_source(std::shared_ptr<Link> link, int side, FrameHeader header,
                                        PayloadSource& source, std::size_t size);
  End& self() { return link_->ends[side_]; }

  std::shared_ptr<Link> link_;
  const int side_;
};

Result<void> PairChannel::enqueue(Link& link, int side, QueuedFrame frame) {
  End& to = link.ends[1 - side];
  if (link.ends[side].closed) return fail(*link.ends[side].closed);
  if (to.closed) return fail(gone());
  if (to.inbox_bytes + frame.bytes.size() > kMaxQueuedBytes) {
    return fail(Code::kBusy, "in-process: the receiver is too slow");
  }
  frame.header.version = link.ends[side].version;
  frame.since = link.executor.now();
  to.inbox_bytes += frame.bytes.size();
  to.inbox.push_back(std::move(frame));
  wake(to);
  return {};
}

Result<void> PairChannel::send(FrameHeader header, base::ConstBuffers payload) {
  const std::size_t size = base::total_size(payload);
  MC_CHECK(check_size(header, size));
  header.payload_length = static_cast<std::uint32_t>(size);
  QueuedFrame frame;
  frame.header = header;
  try {
    frame.bytes.reserve(size);
    for (base::ConstBuffer part : payload) {
      frame.bytes.insert(frame.bytes.end(), part.begin(), part.end());
    }
    return enqueue(*link_, side_, std::move(frame));
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "frame of " + std::to_string(size) + " bytes");
  }
}

Task<Result<void>> PairChannel::send_source(std::shared_ptr<Link> link, int side,
                                            FrameHeader header, PayloadSource& source,
                                            std::size_t size) {
  MC_CO_CHECK(check_size(header, size));
  header.payload_length = static_cast<std::uint32_t>(size);
  QueuedFrame frame;
  frame.header = header;
  Done done(link->executor);
  if (size > 0) {
    frame.source = &source;
    frame.sender = &done;
  }
  MC_CO_CHECK(enqueue(*link, side, std::move(frame)));
  if (size == 0) co_return Result<void>();
  co_return co_await done;
}

Backlog PairChannel::backlog() const {
  const End& to = link_->ends[1 - side_];
  if (to.inbox.empty()) return {};
  return {to.inbox_bytes, to.inbox.front().since};
}

void PairChannel::close(Error reason) {
  End& end = self();
  if (end.closed) return;
  end.closed = reason;
  for (QueuedFrame& frame : end.inbox) {
    if (frame.sender) frame.sender->set(fail(gone()));
  }
  end.inbox.clear();
  end.inbox_bytes = 0;
  end.opened = false;

  // The peer still gets what was copied before; what stands in our callers' memory is out of reach.
  End& other = link_->ends[1 - side_];
  auto first = std::find_if(other.inbox.begin(), other.inbox.end(),
                            [](const QueuedFrame& frame) { return frame.sender != nullptr; });
  if (first == other.inbox.begin()) other.opened = false;
  for (auto it = first; it != other.inbox.end(); ++it) {
    if (it->sender) it->sender->set(fail(reason));
    other.inbox_bytes -= it->bytes.size();
  }
  other.inbox.erase(first, other.inbox.end());
  wake(end);
  wake(other);
}

}  // namespace

std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>> make_channel_pair(
    os::Executor& executor) {
  auto link = std::make_shared<Link>(executor);
  for (End& end : link->ends)
    end.peer = {"in-process", ::getpid(), true};
  return {std::make_unique<PairChannel>(link, 0), std::make_unique<PairChannel>(link, 1)};
}

}  // namespace mooncake::net
