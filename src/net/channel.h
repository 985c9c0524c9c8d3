// Channel: one connection that carries frames, in order, both ways. Sockets and in-process pairs
// today; shared-memory rings carry the same frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/task.h"
#include "mooncake/result.h"
#include "net/frame.h"

namespace mooncake::net {

using base::Task;

// Where the bytes of a payload go. The channel asks for the place immediately before each copy, on
// the executor's thread, so that a call that has ended in the meantime can point to scratch memory:
// this is what makes "no byte is touched after return" true.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // At least one byte, at most `remaining`; the next bytes of the payload go there. May be asked
  // again without a commit, when no byte had arrived.
  virtual std::span<std::byte> prepare(std::size_t remaining) = 0;
  // The same for several places that take the bytes one after the other, at most `remaining` of
  // them together; returns how many places there are, at least one.
  virtual std::size_t prepare_all(std::size_t remaining, std::span<std::span<std::byte>> places) {
    places.front() = prepare(remaining);
    return 1;
  }
  // The first `size` bytes of what was prepared last have been filled.
  virtual void commit(std::size_t size) = 0;
  // True when places may lie in memory of users, which may be gone or protected: the channel then
  // copies so that it can tell.
  virtual bool fills_user_memory() const { return false; }
  // Where the next byte belongs can't be written: prepare() gives another place from here on.
  virtual void lose() {}
};

// Where the bytes of a payload come from. Asked immediately before each copy, like the sink: a call
// that has ended gives zeros from then on, and the message is abandoned after the frame.
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;
  // At least one byte, at most `remaining`; valid until the next call, and only while live().
  virtual base::ConstBuffer next(std::size_t remaining) = 0;
  // The same for several pieces, at most `remaining` bytes together; returns how many there are, at
  // least one. All are valid until the next call of either.
  virtual std::size_t next_all(std::size_t remaining, std::span<base::ConstBuffer> pieces) {
    pieces.front() = next(remaining);
    return 1;
  }
  // False: memory that the last call gave is out of reach. The channel asks before each copy; it
  // fills the frame with zeros of its own, and the message is abandoned as soon as its current
  // frame is whole.
  virtual bool live() const { return true; }
};

// Buffers one after the other; they must outlive its use.
class BufferSource final : public PayloadSource {
 public:
  explicit BufferSource(base::ConstBuffers buffers) : buffers_(buffers) {}
  base::ConstBuffer next(std::size_t remaining) override;
  std::size_t next_all(std::size_t remaining, std::span<base::ConstBuffer> pieces) override;

 private:
  base::ConstBuffers buffers_;
  std::size_t offset_ = 0;  // into buffers_.front()
};

// A sink that forgets. Use one per channel; it owns a small scratch block.
class DiscardSink final : public PayloadSink {
 public:
  std::span<std::byte> prepare(std::size_t remaining) override;
  void commit(std::size_t) override {}

 private:
  std::array<std::byte, 16384> scratch_;
};

struct PeerInfo {
  std::string address;   // "10.0.0.2:15001", "in-process"
  std::int32_t pid = 0;  // from the kernel (SO_PEERCRED), 0 when unknown
  bool same_process = false;
};

// Copied payloads that wait to leave: the memory they take, and since when the oldest waits.
struct Backlog {
  std::size_t bytes = 0;
  base::TimePoint since{};
};

// Executor thread only. One receiver task at a time; any number of senders, whose frames go out in
// order of the calls. Frames arrive in order and exactly once until the channel breaks. Frames that
// are queued in one turn of the executor leave in one system call.
class Channel {
 public:
  virtual ~Channel() = default;

  // Queues one frame, copying its payload (header.payload_length is set here), and returns at once.
  // For bodies; kBusy when more than kMaxQueuedBytes wait to leave.
  virtual Result<void> send(FrameHeader header, base::ConstBuffers payload) = 0;
  // Sends one frame of `size` bytes that are taken from the source as they leave. When it returns,
  // with or without error, the channel refers to the source no more.
  virtual Task<Result<void>> send_from(FrameHeader header, PayloadSource& source,
                                       std::size_t size) = 0;

  virtual Backlog backlog() const = 0;

  // The next header; its payload must be taken by receive_payload() before the next call.
  virtual Task<Result<FrameHeader>> receive() = 0;
  // Exactly `size` bytes, through the sink.
  virtual Task<Result<void>> receive_payload(PayloadSink& sink, std::size_t size) = 0;

  // The frame version that the hello agreed upon.
  virtual void set_version(std::uint8_t version) = 0;
  // A frame once begun must make progress within this time, else the channel closes with
  // kDeadlineExceeded. For wires that can stand still; the default is 30 s.
  virtual void set_stall_timeout(base::Duration) {}
  // Ends all waiting calls with `reason`. Idempotent. Bytes queued but not sent are dropped.
  virtual void close(Error reason) = 0;
  virtual bool closed() const = 0;
  virtual const PeerInfo& peer() const = 0;
};
inline constexpr std::size_t kMaxQueuedBytes = 64u << 20;

}  // namespace mooncake::net
