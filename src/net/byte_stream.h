// ByteStream: what the frames of a channel travel through: a socket, or rings of shared memory.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <functional>
#include <span>

#include "net/send_queue.h"

namespace mooncake::net {

// Executor thread only. What is called back is called once, in a turn of the reactor, and not from
// inside the call that asks for it; after close() with an error, if at all. Errors are numbers of
// errno; 0 stands for the peer's end.
class ByteStream {
 public:
  using Ready = std::function<void(int error, bool failed)>;
  using Filled = std::function<void(int error, std::size_t size)>;  // 0 bytes: failed

  virtual ~ByteStream() = default;

  // Up to a stream's end at least one byte, without delay where it is there already.
  virtual void receive_some(std::span<std::byte> to, Filled done) = 0;
  // What can be had without a system call; 0 = nothing, or unknown.
  virtual std::size_t receive_now(std::span<std::byte> to) = 0;

  // Whether receive() is there: then the kernel places bytes, and tells of places that are none.
  virtual bool places_bytes() const = 0;
  // As recvmsg without waiting.
  virtual ssize_t receive(msghdr& message) = 0;
  virtual void when_readable(Ready done) = 0;

  // As sendmsg without waiting.
  virtual ssize_t send(Pieces& pieces) = 0;
  virtual void when_writable(Ready done) = 0;

  // What was sent still arrives.
  virtual void close() = 0;
};

}  // namespace mooncake::net
