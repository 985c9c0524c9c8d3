#include "net/rpc_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "net/rpc_call.h"

namespace mooncake::net {
namespace {

constexpr base::Duration kPatience = std::chrono::seconds(5);  // with bytes that wait
constexpr base::Duration kCloseInterval = std::chrono::seconds(1);
// How often the unread bytes are counted while memory is short: all connections are looked at.
constexpr base::Duration kCountInterval = std::chrono::milliseconds(10);
constexpr std::size_t kCountSteps = 64;  // or when this part of the limit has been sent

// Bytes that the connection has held since `until` or longer.
std::size_t late_bytes(const ServerConnection& connection, base::TimePoint until) {
  if (connection.channel->closed()) return 0;
  const Backlog backlog = connection.channel->backlog();
  std::size_t bytes = backlog.since <= until ? backlog.bytes : 0;
  const auto add = [&](const Request& request) {
    if (request.began() <= until) bytes += request.cost();
  };
  for (const auto& [id, request] : connection.open)
    add(*request);
  if (connection.arriving) add(*connection.arriving);
  return bytes;
}

// The connection of which `size` says the most; null when it says 0 of all.
template <typename Size>
ServerConnection* largest(const ServerConnections& connections, Size size, std::size_t& most) {
  ServerConnection* found = nullptr;
  most = 0;
  for (const std::shared_ptr<ServerConnection>& connection : connections) {
    const std::size_t bytes = size(*connection);
    if (bytes <= most) continue;
    most = bytes;
    found = connection.get();
  }
  return found;
}

void close_greedy(ServerConnection& connection, std::size_t bytes) {
  const Error reason(Code::kBusy,
                     fmt::format("{}: {} bytes of requests or unread replies were in the way",
                                 connection.channel->peer().address, bytes));
  base::log_warning("connection of {} '{}' closed: {}", connection.peer.role, connection.peer.name,
                    reason.message());
  connection.channel->close(reason);
}

}  // namespace

ServerMemory::ServerMemory(const base::Clock& clock, std::size_t limit, std::size_t max_connections,
                           const ServerConnections& connections, base::Budget* budget)
    : clock_(clock),
      limit_(limit),
      share_(limit / 2 / std::max<std::size_t>(1, max_connections)),
      connections_(connections),
      budget_(budget) {}

void ServerMemory::charge(std::size_t bytes) {
  if (budget_ && bytes > charged_) budget_->add(base::MemoryUse::kReceive, bytes - charged_);
  if (budget_ && bytes < charged_) budget_->give_back(base::MemoryUse::kReceive, charged_ - bytes);
  charged_ = bytes;
}

bool ServerMemory::admits(const ServerConnection& from, std::size_t cost) {
  const bool fair = from.cost + from.channel->backlog().bytes + cost <= share_;
  if (budget_ && !budget_->has_room(cost)) {
    if (clock_.now() >= next_count_) count_again();
    if (!budget_->has_room(cost)) return fair;
  }
  if (fits(cost, limit_ / 2)) return true;
  if (unread_ - counted_ > limit_ / kCountSteps || clock_.now() >= next_count_) count_again();
  if (fits(cost, limit_ / 2)) return true;
  if (close_late()) count_again();
  if (fits(cost, limit_ / 2)) return true;
  return fair;
}

Result<void> ServerMemory::send(ServerConnection& to, const FrameHeader& header,
                                base::ConstBuffers payload) {
  const std::size_t size = kFrameHeaderSize + base::total_size(payload);
  if (!fits(size, limit_)) make_room(size);
  if (!fits(size, limit_)) {
    return fail(Code::kBusy, fmt::format("no memory for a reply of {} bytes", size));
  }
  MC_CHECK(to.channel->send(header, payload));
  unread_ += size;
  charge(requests_ + unread_);
  return {};
}

std::size_t ServerMemory::unread_bytes() const {
  std::size_t bytes = 0;
  for (const std::shared_ptr<ServerConnection>& connection : connections_) {
    if (!connection->channel->closed()) bytes += connection->channel->backlog().bytes;
  }
  return bytes;
}

void ServerMemory::count_again() {
  unread_ = counted_ = unread_bytes();
  charge(requests_ + unread_);
  next_count_ = clock_.now() + kCountInterval;
}

// Who holds less than his part of the half is not the cause, however long he has held it.
bool ServerMemory::close_late() {
  const base::TimePoint now = clock_.now();
  if (now < next_close_) return false;
  next_close_ = now + kCloseInterval;
  const auto late = [until = now - kPatience](const ServerConnection& connection) {
    return late_bytes(connection, until);
  };
  std::size_t bytes = 0;
  ServerConnection* connection = largest(connections_, late, bytes);
  if (!connection || bytes < limit_ / 2 / connections_.size()) return false;
  ++closed_;
  close_greedy(*connection, bytes);
  return true;
}

void ServerMemory::make_room(std::size_t size) {
  count_again();
  const auto unread = [](const ServerConnection& connection) {
    return connection.channel->closed() ? 0 : connection.channel->backlog().bytes;
  };
  while (!fits(size, limit_)) {
    std::size_t bytes = 0;
    ServerConnection* connection = largest(connections_, unread, bytes);
    if (!connection) return;
    ++closed_;
    close_greedy(*connection, bytes);
    count_again();
  }
}

}  // namespace mooncake::net
