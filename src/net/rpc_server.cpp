#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "net/ring_quota.h"
#include "net/rpc.h"
#include "net/rpc_call.h"
#include "net/rpc_codec.h"

namespace mooncake::net {
namespace {

constexpr std::uint32_t kRetryAfterMs = 10;
constexpr std::size_t kMaxLeaving = 64;  // connections that have been told to go
constexpr base::Duration kAcceptPause = std::chrono::milliseconds(50);
constexpr base::Duration kWarningInterval = std::chrono::minutes(1);
constexpr int kLooksPerIdleTime = 8;

using Connection = ServerConnection;

// Channels in order of arrival, of which the oldest goes first.
class ChannelQueue {
 public:
  std::uint64_t enter(Channel& channel, base::TimePoint now) {
    waiting_.emplace(++last_, Place{&channel, now});
    return last_;
  }
  void leave(std::uint64_t ticket) { waiting_.erase(ticket); }
  std::size_t size() const { return waiting_.size(); }
  base::TimePoint oldest_since() const { return waiting_.begin()->second.since; }
  void close_oldest(const Error& reason) {
    Channel& oldest = *waiting_.begin()->second.channel;
    waiting_.erase(waiting_.begin());
    oldest.close(reason);
  }
  void close_all(const Error& reason) {
    while (size() > 0)
      close_oldest(reason);
  }

 private:
  struct Place {
    Channel* channel;
    base::TimePoint since;
  };
  std::map<std::uint64_t, Place> waiting_;
  std::uint64_t last_ = 0;
};

// Nothing is being worked on, and nothing is unread.
bool is_idle(const Connection& connection) {
  return !connection.arriving && connection.open.empty() &&
         connection.channel->backlog().bytes == 0;
}

// Of the peer that has the most idle connections, the one that has been idle for the longest; null
// when there is none. Looks at all: that is less than a hello costs.
std::shared_ptr<Connection> idlest_of_most(const ServerConnections& connections) {
  struct Peer {
    std::size_t count = 0;
    std::shared_ptr<Connection> idlest;
  };
  std::unordered_map<std::uint64_t, Peer> peers;  // by incarnation
  const Peer* most = nullptr;
  const auto goes_before = [](const Peer& a, const Peer& b) {
    if (a.count != b.count) return a.count > b.count;
    return a.idlest->last_active < b.idlest->last_active;
  };
  for (const std::shared_ptr<Connection>& connection : connections) {
    if (connection->channel->closed() || !is_idle(*connection)) continue;
    Peer& peer = peers[static_cast<std::uint64_t>(connection->peer.incarnation)];
    ++peer.count;
    if (!peer.idlest || connection->last_active < peer.idlest->last_active) {
      peer.idlest = connection;
    }
  }
  for (const auto& [incarnation, peer] : peers) {
    if (!most || goes_before(peer, *most)) most = &peer;
  }
  return most ? most->idlest : nullptr;
}

class Server final : public RpcServer {
 public:
  Server(os::Env env, Options options)
      : env_(env),
        options_(std::move(options)),
        memory_(env_.executor.clock(), options_.limits.max_bytes, options_.limits.max_connections,
                connections_, options_.budget),
        ring_quota_(
            std::make_shared<RingQuota>(options_.limits.max_ring_connections, options_.budget)) {}
  ~Server() override { assert(tasks_.running() == 0 && "await stop() first"); }

  void handle(Method method, Handler handler) override {
    handlers_[static_cast<std::uint16_t>(method)] = std::move(handler);
  }
  Result<Address> listen(const Address& at) override;
  void serve(std::unique_ptr<Channel> channel) override;
  void on_disconnect(std::function<void(const PeerIdentity&)> callback) override {
    on_disconnect_ = std::move(callback);
  }
  Task<void> stop() override;
  Counters counters() const override;

 private:
  Result<Address> listen_to(const Address& at);
  Task<void> accept(Listener& listener);
  void warn(const Listener& listener, const Error& error);
  bool free_descriptor();
  Result<void> make_room();
  void dismiss(const std::shared_ptr<Connection>& connection);
  Task<void> run_connection(std::unique_ptr<Channel> channel);
  Task<void> run_greeted(std::shared_ptr<Connection> connection);
  void count_refusal(const Error& error);
  void look_later();
  void look_at(Connection& connection);

  Task<Error> read(std::shared_ptr<Connection> connection);
  Task<Result<void>> read_data(std::shared_ptr<Connection> connection, FrameHeader header);
  Task<Result<void>> read_request(std::shared_ptr<Connection> connection, FrameHeader header);
  Result<void> check_header(const Connection& connection, const FrameHeader& header) const;
  // Why this request is not worked on; null when it is.
  std::optional<Error> refusal(const Connection& connection, const FrameHeader& header);
  Task<void> run_request(std::shared_ptr<Connection> connection, std::shared_ptr<Request> request,
                         const Handler& handler);

  FrameHeader reply_header(const FrameHeader& request) const;
  void reply(Connection& connection, const FrameHeader& request, Result<Bytes> result);

  void offer_rings();

  const os::Env env_;
  Options options_;
  std::unordered_map<std::uint16_t, Handler> handlers_;
  std::function<void(const PeerIdentity&)> on_disconnect_;

  std::vector<std::unique_ptr<Listener>> listeners_;
  ChannelQueue anteroom_;          // whose hello is not over
  ServerConnections connections_;  // greeted
  ChannelQueue leaving_;           // that have been dismissed
  ServerMemory memory_;
  const std::shared_ptr<RingQuota> ring_quota_;
  std::unordered_map<std::uint64_t, std::size_t> peers_;  // connections by incarnation
  os::TimerId look_timer_ = os::TimerId::kNone;
  base::TimePoint next_warning_{};  // of an accept() that failed
  Counters counters_{};
  bool stopping_ = false;
  base::TaskGroup tasks_;
};

// Connections.

Result<Address> Server::listen(const Address& at) {
  if (stopping_) return fail(Code::kCancelled, "server has been stopped");
  MC_TRY(const Address bound, listen_to(at));
  if (options_.identity.rings.empty() && options_.identity.boot_id.valid()) offer_rings();
  return bound;
}

Result<Address> Server::listen_to(const Address& at) {
  MC_TRY(std::unique_ptr<Listener> listener, env_.network.listen(at));
  listener->set_ring_quota(ring_quota_);
  listeners_.push_back(std::move(listener));
  tasks_.start(accept(*listeners_.back()));
  return listeners_.back()->address();
}

// Without them all goes through sockets, as for other hosts.
void Server::offer_rings() {
  const Address at(
      fmt::format("{}mooncake-{:016x}-{:016x}", kRingScheme,
                  static_cast<std::uint64_t>(options_.identity.incarnation), base::secure_random()),
      0);
  if (listen_to(at)) options_.identity.rings = at.host;
}

Task<void> Server::accept(Listener& listener) {
  while (!stopping_) {
    Result<std::unique_ptr<Channel>> channel = co_await listener.accept();
    if (channel) {
      serve(*std::move(channel));
      continue;
    }
    if (channel.error().code() == Code::kCancelled) co_return;
    warn(listener, channel.error());
    if (channel.error().code() == Code::kBusy && free_descriptor()) continue;
    co_await env_.executor.sleep_for(kAcceptPause);
  }
}

void Server::warn(const Listener& listener, const Error& error) {
  if (env_.now() < next_warning_) return;
  next_warning_ = env_.now() + kWarningInterval;
  base::log_warning("on {}: {}", to_string(listener.address()), error.detail());
}

// For a connection that waits in the kernel's queue. False: wait a moment; one may be free then.
bool Server::free_descriptor() {
  if (anteroom_.size() > 0) {
    if (env_.now() - anteroom_.oldest_since() < kAcceptPause) return false;  // all say their hello
    ++counters_.crowded_out;
    anteroom_.close_oldest(Error(Code::kBusy, "closed for a newer connection"));
    return true;
  }
  if (leaving_.size() > 0) {
    leaving_.close_oldest(Error(Code::kConnectionLost, "did not leave in time"));
    return true;
  }
  if (const std::shared_ptr<Connection> idlest = idlest_of_most(connections_)) dismiss(idlest);
  return false;
}

void Server::serve(std::unique_ptr<Channel> channel) {
  if (stopping_) return channel->close(Error(Code::kCancelled, "server has been stopped"));
  while (anteroom_.size() >= std::max<std::size_t>(options_.limits.max_greeting, 1)) {
    ++counters_.crowded_out;
    anteroom_.close_oldest(Error(Code::kBusy, "closed for a newer connection"));
  }
  ++counters_.accepted;
  channel->set_stall_timeout(options_.limits.stall_timeout);
  tasks_.start(run_connection(std::move(channel)));
}

// For one more greeted connection.
Result<void> Server::make_room() {
  if (connections_.size() < options_.limits.max_connections) return {};
  if (const std::shared_ptr<Connection> idlest = idlest_of_most(connections_)) {
    dismiss(idlest);
    return {};
  }
  ++counters_.over_limit;
  return fail(Error(Code::kBusy, fmt::format("{} connections are busy here", connections_.size()))
                  .with_retry_after(kRetryAfterMs));
}

// Nothing that it sends is begun from here on. It is read until the peer has heard so and closes:
// a socket that is closed over unread bytes takes back what was sent last.
void Server::dismiss(const std::shared_ptr<Connection>& connection) {
  ++counters_.crowded_out;
  connections_.erase(connection);
  if (leaving_.size() >= kMaxLeaving) {
    leaving_.close_oldest(Error(Code::kConnectionLost, "did not leave in time"));
  }
  connection->dismissed = leaving_.enter(*connection->channel, env_.now());
  connection->leave_timer = env_.executor.run_at(
      env_.now() + options_.limits.handshake_timeout, [&connection = *connection] {
        connection.channel->close(Error(Code::kConnectionLost, "did not leave in time"));
      });
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(Method::kGoodbye);
  header = reply_header(header);
  Result<void> sent = connection->channel->send(header, {});
  if (!sent) connection->channel->close(sent.error());
}

Task<void> Server::run_connection(std::unique_ptr<Channel> channel) {
  const std::uint64_t ticket = anteroom_.enter(*channel, env_.now());
  Result<PeerIdentity> peer = co_await receive_greeting(
      env_, *channel, options_.identity, env_.now() + options_.limits.handshake_timeout,
      [this] { return make_room(); });
  anteroom_.leave(ticket);
  if (!peer) {
    count_refusal(peer.error());
    co_return;
  }
  auto connection = std::make_shared<Connection>(std::move(channel), *std::move(peer), memory_);
  connection->last_active = env_.now();
  connections_.insert(connection);
  look_later();
  co_await run_greeted(connection);
  connections_.erase(connection);
}

void Server::count_refusal(const Error& error) {
  switch (error.code()) {
    case Code::kAuthenticationFailed:
      ++counters_.refused_authentication;
      break;
    case Code::kVersionMismatch:
      ++counters_.refused_version;
      break;
    case Code::kProtocolError:
    case Code::kDeadlineExceeded:
      ++counters_.malformed;
      break;
    default:
      break;
  }
}

Task<void> Server::run_greeted(std::shared_ptr<Connection> connection) {
  const auto incarnation = static_cast<std::uint64_t>(connection->peer.incarnation);
  ++peers_[incarnation];
  const Error reason = co_await read(connection);
  if (connection->dismissed) {
    leaving_.leave(*connection->dismissed);
    env_.executor.cancel(connection->leave_timer);
  }
  if (reason.code() == Code::kProtocolError || reason.code() == Code::kVersionMismatch) {
    ++counters_.malformed;
    base::log_warning("connection of {} '{}' closed: {}", connection->peer.role,
                      connection->peer.name, reason.message());
  }
  if (reason.code() == Code::kDeadlineExceeded) ++counters_.stalled;
  connection->channel->close(reason);
  for (const auto& [id, request] : connection->open)
    request->stop_data(reason);
  co_await connection->handlers.join();
  if (--peers_[incarnation] > 0) co_return;
  peers_.erase(incarnation);
  if (on_disconnect_) on_disconnect_(connection->peer);
}

// One timer for all connections; there is none while nobody is connected.
void Server::look_later() {
  if (look_timer_ != os::TimerId::kNone || connections_.empty() || stopping_) return;
  const base::Duration pause = options_.limits.idle_timeout / kLooksPerIdleTime;
  look_timer_ = env_.executor.run_at(env_.now() + pause, [this] {
    look_timer_ = os::TimerId::kNone;
    for (const std::shared_ptr<Connection>& connection : connections_) {
      if (!connection->channel->closed()) look_at(*connection);
    }
    look_later();
  });
}

void Server::look_at(Connection& connection) {
  const RpcLimits& limits = options_.limits;
  const base::TimePoint now = env_.now();
  if (connection.arriving && now - connection.arriving->began() > limits.max_deadline) {
    // Each of its bytes was in time for the channel.
    return connection.channel->close(
        Error(Code::kDeadlineExceeded, "a request took longer to arrive than it may take at all"));
  }
  if (!is_idle(connection)) {
    connection.last_active = now;
  } else if (now - connection.last_active >= limits.idle_timeout) {
    ++counters_.idle;
    connection.channel->close(Error(Code::kConnectionLost, "idle for too long"));
  }
}

RpcServer::Counters Server::counters() const {
  Counters result = counters_;
  result.greedy = memory_.closed();
  result.over_limit += ring_quota_->refused();
  result.connections = connections_.size() + anteroom_.size() + leaving_.size();
  result.held_bytes = memory_.held_bytes();
  return result;
}

Task<void> Server::stop() {
  stopping_ = true;
  env_.executor.cancel(look_timer_);
  const Error reason(Code::kCancelled, "server has been stopped");
  for (const std::unique_ptr<Listener>& listener : listeners_)
    listener->close();
  for (const std::shared_ptr<Connection>& connection : connections_) {
    connection->channel->close(reason);
  }
  anteroom_.close_all(reason);
  leaving_.close_all(reason);
  co_await tasks_.join();
  listeners_.clear();
}

// Frames.

Task<Error> Server::read(std::shared_ptr<Connection> connection) {
  for (;;) {
    Result<FrameHeader> header = co_await connection->channel->receive();
    if (!header) co_return std::move(header).error();
    Result<void> read = check_header(*connection, *header);
    if (read && connection->dismissed) {
      read = co_await discard_payload(*connection->channel, connection->discard,
                                      header->payload_length);
    } else if (read && (header->flags & kData) != 0) {
      read = co_await read_data(connection, *header);
    } else if (read) {
      read = co_await read_request(connection, *header);
    }
    if (!read) co_return std::move(read).error();
  }
}

Result<void> Server::check_header(const Connection& connection, const FrameHeader& header) const {
  if ((header.flags & kReply) != 0) {
    return fail(Code::kProtocolError, "a reply without a request");
  }
  if ((header.flags & kData) == 0 && connection.open.contains(header.request_id)) {
    return fail(Code::kProtocolError,
                fmt::format("request id {} is still in use", header.request_id));
  }
  return {};
}

Task<Result<void>> Server::read_data(std::shared_ptr<Connection> connection, FrameHeader header) {
  auto found = connection->open.find(header.request_id);
  if (found == connection->open.end()) {
    co_return co_await discard_payload(*connection->channel, connection->discard,
                                       header.payload_length);
  }
  const std::shared_ptr<Request> request = found->second;
  request->begin_data(header);
  MC_CO_CHECK(
      co_await discard_payload(*connection->channel, request->sink(), header.payload_length));
  request->end_data(header);
  co_return Result<void>();
}

std::optional<Error> Server::refusal(const Connection& connection, const FrameHeader& header) {
  const RpcLimits& limits = options_.limits;
  const std::size_t bytes = connection.body_bytes + header.payload_length;
  if (header.payload_length > limits.max_bytes_per_connection) {
    ++counters_.over_limit;
    return Error(Code::kInvalidArgument,
                 fmt::format("request of {} bytes, at most {} are taken", header.payload_length,
                             limits.max_bytes_per_connection));
  }
  if (connection.open.size() >= limits.max_requests_per_connection ||
      bytes > limits.max_bytes_per_connection) {
    ++counters_.over_limit;
    return Error(Code::kBusy, fmt::format("{} requests with {} bytes are being worked on",
                                          connection.open.size(), connection.body_bytes))
        .with_retry_after(kRetryAfterMs);
  }
  if (header.deadline_us == 0) {
    ++counters_.expired;
    return Error(Code::kDeadlineExceeded, "expired before it was begun");
  }
  if (options_.epoch) {
    const auto known = static_cast<std::uint32_t>(*options_.epoch);
    if (header.epoch != 0 && header.epoch < known) {
      return Error(Code::kStaleEpoch,
                   fmt::format("epoch {} is over, {} is known here", header.epoch, known));
    }
  }
  if (!handlers_.contains(header.method)) {
    return Error(Code::kNotSupported, fmt::format("method {:#06x}", header.method));
  }
  if (!memory_.admits(connection, Request::cost_of(header))) {
    ++counters_.over_limit;
    return Error(Code::kBusy, "memory is short").with_retry_after(kRetryAfterMs);
  }
  return std::nullopt;
}

Task<Result<void>> Server::read_request(std::shared_ptr<Connection> connection,
                                        FrameHeader header) {
  const base::TimePoint began = env_.now();
  const base::TimePoint deadline =
      began + std::min<base::Duration>(std::chrono::microseconds(header.deadline_us),
                                       options_.limits.max_deadline);
  ++counters_.requests;
  connection->last_active = began;
  std::optional<Error> refused = refusal(*connection, header);
  if (refused) {
    MC_CO_CHECK(
        co_await discard_payload(*connection->channel, connection->discard, header.payload_length));
    reply(*connection, header, fail(*std::move(refused)));
    co_return Result<void>();
  }
  auto request = std::make_shared<Request>(env_.executor, connection, header, began, deadline);
  connection->arriving = request;
  Result<Bytes> body = co_await receive_body(*connection->channel, header.payload_length);
  connection->arriving.reset();
  if (!body) co_return fail(std::move(body).error());
  if (env_.now() >= deadline) {
    ++counters_.expired;
    reply(*connection, header, fail(Code::kDeadlineExceeded, "expired while it was arriving"));
    co_return Result<void>();
  }
  request->set_body(*std::move(body));
  request->set_reply_header(reply_header(header));
  connection->open.emplace(header.request_id, request);
  connection->handlers.start(run_request(connection, request, handlers_[header.method]));
  co_return Result<void>();
}

Task<void> Server::run_request(std::shared_ptr<Connection> connection,
                               std::shared_ptr<Request> request, const Handler& handler) {
  Result<Bytes> result = co_await handler(*request);
  connection->open.erase(request->header().request_id);
  connection->last_active = env_.now();
  if (result) {
    Result<void> sent = request->send_staged();
    if (!sent) result = fail(std::move(sent).error());
  }
  reply(*connection, request->header(), std::move(result));
}

// Replies.

FrameHeader Server::reply_header(const FrameHeader& request) const {
  FrameHeader header;
  header.method = request.method;
  header.flags = kReply;
  header.request_id = request.request_id;
  header.epoch = options_.epoch ? static_cast<std::uint32_t>(*options_.epoch) : 0;
  header.incarnation = static_cast<std::uint64_t>(options_.identity.incarnation);
  header.trace_id = request.trace_id;
  return header;
}

void Server::reply(Connection& connection, const FrameHeader& request, Result<Bytes> result) {
  if (connection.channel->closed()) return;
  FrameHeader header = reply_header(request);
  if (result && result->size() > kMaxControlPayload) {
    result = fail(Code::kInternal, fmt::format("reply of {} bytes", result->size()));
  }
  if (!result) {
    ++counters_.failed_requests;
    header.flags |= kError;
  }
  const Bytes body = result ? *std::move(result) : encode_error(result.error());
  const base::ConstBuffer part(body);
  Result<void> sent = memory_.send(connection, header, {&part, 1});
  // A peer that leaves its replies lying for 64 MiB is not owed more memory.
  if (!sent) connection.channel->close(sent.error());
}

}  // namespace

std::unique_ptr<RpcServer> RpcServer::create(os::Env env, Options options) {
  return std::make_unique<Server>(env, std::move(options));
}

}  // namespace mooncake::net
