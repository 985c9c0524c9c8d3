// What waits to leave on a socket: copied bytes, and frames whose payload is taken from its
// sender's memory at the last moment. For socket_channel.cpp.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <coroutine>
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "mooncake/result.h"
#include "net/channel.h"

namespace mooncake::net {

// Scattered bytes for one system call.
class Pieces {
 public:
  // False when nothing more fits, or not all of this did.
  bool add(base::ConstBuffer bytes);
  bool add_zeros(std::size_t size);
  std::size_t total() const { return total_; }
  msghdr message();
  std::span<const iovec> parts() const { return {iov_, count_}; }
  // Some of them lie in memory that this process does not vouch for (os/user_memory.h).
  void note_user_memory() { user_memory_ = true; }
  bool has_user_memory() const { return user_memory_; }

 private:
  static constexpr std::size_t kMaxPieces = 256;
  iovec iov_[kMaxPieces];
  std::size_t count_ = 0;
  std::size_t total_ = 0;
  bool user_memory_ = false;
};

// The payload of one frame, in its sender's coroutine frame, which waits until `result` is there.
class Outgoing {
 public:
  Outgoing(PayloadSource& source, std::size_t size) : source_(source), unasked_(size) {}

  // Asks the source for what comes next; directly before a system call. Tiny pieces are copied
  // together. False when the call is full or the source has more to give.
  bool gather(Pieces& pieces);
  // Returns what is left of `sent`.
  std::size_t advance(std::size_t sent);
  bool empty() const { return unasked_ == 0 && first_ == given_.size(); }

  std::optional<Result<void>> result;
  std::coroutine_handle<> waiter;

 private:
  void ask();
  void abandon();
  void copy_tiny_pieces();

  PayloadSource& source_;
  std::size_t unasked_;  // bytes that the source was not asked for yet
  // Asked for by one call. Those before first_ have been sent, and of that one a part may have.
  std::vector<base::ConstBuffer> given_;
  std::size_t first_ = 0;
  std::vector<std::byte> copied_;  // what tiny pieces became
  bool is_copied_ = false;         // those of given_
  bool abandoned_ = false;         // the rest are zeros
};

class SendQueue {
 public:
  explicit SendQueue(const base::Clock& clock) : clock_(clock) {}

  // Copies.
  void append(base::ConstBuffer bytes);
  void append(base::ConstBuffers parts, std::size_t total);
  // Refers to the frame until consume() or drop() names it.
  void append(Outgoing& frame);

  bool empty() const { return items_.empty(); }
  // Blocks of copied bytes count until the last byte of them has left: their memory is taken.
  Backlog backlog() const;

  // What the next system call sends.
  void gather(Pieces& pieces);
  // Takes off what it has sent. The frames that have left, with their result set.
  std::vector<Outgoing*> consume(std::size_t sent);
  // Forgets all. The frames that have not left.
  std::vector<Outgoing*> drop(const Error& reason);

 private:
  struct Item {
    explicit Item(base::TimePoint since_) : since(since_) {}
    base::TimePoint since;
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    Outgoing* frame = nullptr;
  };
  Item& add_item() { return items_.emplace_back(clock_.now()); }

  const base::Clock& clock_;
  std::deque<Item> items_;
  std::vector<std::byte> spare_;
  std::size_t copied_bytes_ = 0;
};

}  // namespace mooncake::net
