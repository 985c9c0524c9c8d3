// Memory that the peers of one RPC server make it take: requests that arrive or are worked on, and
// replies that wait to be read. One bound for all connections together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>

#include "base/budget.h"
#include "base/clock.h"
#include "net/channel.h"

namespace mooncake::net {

struct ServerConnection;
using ServerConnections = std::unordered_set<std::shared_ptr<ServerConnection>>;

// Half of the bound is for whoever comes first, as long as his peers read. The other half is shared
// out evenly: a connection that holds less than its share is always served, however greedy others
// are. Executor thread only.
class ServerMemory {
 public:
  // Both references outlive this.
  ServerMemory(const base::Clock& clock, std::size_t limit, std::size_t max_connections,
               const ServerConnections& connections, base::Budget* budget);
  ~ServerMemory() { charge(0); }
  ServerMemory(const ServerMemory&) = delete;
  ServerMemory& operator=(const ServerMemory&) = delete;

  // Whether a request that costs so many bytes may be taken. While memory is short, the connection
  // that has held the most for too long is closed, at most one each second.
  bool admits(const ServerConnection& from, std::size_t cost);
  void take(std::size_t cost) {
    requests_ += cost;
    charge(requests_ + unread_);
  }
  void give_back(std::size_t cost) {
    requests_ -= cost;
    charge(requests_ + unread_);
  }

  // Channel::send() of a reply or its data. When there is no room for it, the connections with the
  // most unread bytes are closed until there is; kBusy when that is not enough.
  Result<void> send(ServerConnection& to, const FrameHeader& header, base::ConstBuffers payload);

  // Now, of all connections.
  std::size_t held_bytes() const { return requests_ + unread_bytes(); }
  // Closed here since the start.
  std::uint64_t closed() const { return closed_; }

 private:
  bool fits(std::size_t size, std::size_t limit) const {
    return requests_ + unread_ + size <= limit;
  }
  // What is held here is so many bytes.
  void charge(std::size_t bytes);
  std::size_t unread_bytes() const;
  void count_again();
  bool close_late();
  void make_room(std::size_t size);

  const base::Clock& clock_;
  const std::size_t limit_;
  const std::size_t share_;  // of one connection
  const ServerConnections& connections_;
  std::size_t requests_ = 0;
  // At least the unread bytes: what was sent is added, what has left is found by counting again.
  std::size_t unread_ = 0;
  std::size_t counted_ = 0;  // of these, when they were counted last
  base::TimePoint next_count_{};
  base::TimePoint next_close_{};
  std::uint64_t closed_ = 0;
  base::Budget* const budget_;
  std::size_t charged_ = 0;
};

}  // namespace mooncake::net
