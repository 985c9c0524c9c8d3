#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "net/rpc.h"
#include "net/rpc_call.h"
#include "net/rpc_codec.h"

namespace mooncake::net {
namespace {

constexpr std::uint32_t kRetryAfterMs = 10;
constexpr std::size_t kMaxRefusing = 64;  // connections that are being told that there is no room
constexpr base::Duration kAcceptPause = std::chrono::milliseconds(50);

using Connection = ServerConnection;

class Server final : public RpcServer {
 public:
  Server(os::Env env, Options options) : env_(env), options_(std::move(options)) {}
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
  Counters counters() const override {
    Counters result = counters_;
    result.connections = connections_.size();
    return result;
  }

 private:
  Task<void> accept(Listener& listener);
  Task<void> refuse(std::unique_ptr<Channel> channel);
  Task<void> run_connection(std::shared_ptr<Connection> connection);
  Task<void> run_greeted(std::shared_ptr<Connection> connection);
  void count_refusal(const Error& error);

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

  const os::Env env_;
  const Options options_;
  std::unordered_map<std::uint16_t, Handler> handlers_;
  std::function<void(const PeerIdentity&)> on_disconnect_;

  std::vector<std::unique_ptr<Listener>> listeners_;
  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::unordered_set<Channel*> refusing_;
  std::unordered_map<std::uint64_t, std::size_t> peers_;  // connections by incarnation
  Counters counters_{};
  bool stopping_ = false;
  base::TaskGroup tasks_;
};

// Connections.

Result<Address> Server::listen(const Address& at) {
  if (stopping_) return fail(Code::kCancelled, "server has been stopped");
  MC_TRY(std::unique_ptr<Listener> listener, env_.network.listen(at));
  const Address bound = listener->address();
  listeners_.push_back(std::move(listener));
  tasks_.start(accept(*listeners_.back()));
  return bound;
}

Task<void> Server::accept(Listener& listener) {
  while (!stopping_) {
    Result<std::unique_ptr<Channel>> channel = co_await listener.accept();
    if (channel) {
      serve(*std::move(channel));
    } else if (channel.error().code() == Code::kCancelled) {
      co_return;
    } else {
      // For want of descriptors, as a rule; the connection stays in the kernel's queue.
      base::log_warning("accept on {}: {}", to_string(listener.address()),
                        channel.error().message());
      co_await env_.executor.sleep_for(kAcceptPause);
    }
  }
}

void Server::serve(std::unique_ptr<Channel> channel) {
  if (stopping_) return channel->close(Error(Code::kCancelled, "server has been stopped"));
  if (connections_.size() >= options_.limits.max_connections) {
    ++counters_.over_limit;
    if (refusing_.size() < kMaxRefusing) return tasks_.start(refuse(std::move(channel)));
    return channel->close(Error(Code::kBusy, "too many connections"));
  }
  ++counters_.accepted;
  channel->set_stall_timeout(options_.limits.stall_timeout);
  auto connection = std::make_shared<Connection>(std::move(channel));
  connections_.insert(connection);
  tasks_.start(run_connection(connection));
}

Task<void> Server::refuse(std::unique_ptr<Channel> channel) {
  refusing_.insert(channel.get());
  const Error reason =
      Error(Code::kBusy, fmt::format("{} connections are served here", connections_.size()))
          .with_retry_after(kRetryAfterMs);
  co_await refuse_greeting(env_, *channel, options_.identity, reason,
                           env_.now() + options_.limits.handshake_timeout);
  refusing_.erase(channel.get());
}

Task<void> Server::run_connection(std::shared_ptr<Connection> connection) {
  Result<PeerIdentity> peer =
      co_await receive_greeting(env_, *connection->channel, options_.identity,
                                env_.now() + options_.limits.handshake_timeout);
  if (peer) {
    connection->peer = *std::move(peer);
    co_await run_greeted(connection);
  } else {
    count_refusal(peer.error());
  }
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
  if (reason.code() == Code::kProtocolError || reason.code() == Code::kVersionMismatch) {
    ++counters_.malformed;
    base::log_warning("connection of {} '{}' closed: {}", connection->peer.role,
                      connection->peer.name, reason.message());
  }
  connection->channel->close(reason);
  for (const auto& [id, request] : connection->open)
    request->stop_data(reason);
  co_await connection->handlers.join();
  if (--peers_[incarnation] > 0) co_return;
  peers_.erase(incarnation);
  if (on_disconnect_) on_disconnect_(connection->peer);
}

Task<void> Server::stop() {
  stopping_ = true;
  const Error reason(Code::kCancelled, "server has been stopped");
  for (const std::unique_ptr<Listener>& listener : listeners_)
    listener->close();
  for (const std::shared_ptr<Connection>& connection : connections_) {
    connection->channel->close(reason);
  }
  for (Channel* channel : refusing_)
    channel->close(reason);
  co_await tasks_.join();
  listeners_.clear();
}

// Frames.

Task<Error> Server::read(std::shared_ptr<Connection> connection) {
  for (;;) {
    Result<FrameHeader> header = co_await connection->channel->receive();
    if (!header) co_return std::move(header).error();
    Result<void> read = check_header(*connection, *header);
    if (read && (header->flags & kData) != 0) {
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
  return std::nullopt;
}

Task<Result<void>> Server::read_request(std::shared_ptr<Connection> connection,
                                        FrameHeader header) {
  const base::TimePoint deadline =
      env_.now() + std::min<base::Duration>(std::chrono::microseconds(header.deadline_us),
                                            options_.limits.max_deadline);
  ++counters_.requests;
  std::optional<Error> refused = refusal(*connection, header);
  if (refused) {
    MC_CO_CHECK(
        co_await discard_payload(*connection->channel, connection->discard, header.payload_length));
    reply(*connection, header, fail(*std::move(refused)));
    co_return Result<void>();
  }
  MC_CO_TRY(Bytes body, co_await receive_body(*connection->channel, header.payload_length));
  if (env_.now() >= deadline) {
    ++counters_.expired;
    reply(*connection, header, fail(Code::kDeadlineExceeded, "expired while it was arriving"));
    co_return Result<void>();
  }
  auto request = std::make_shared<Request>(env_.executor, connection, header, deadline);
  connection->body_bytes += body.size();
  request->set_body(std::move(body));
  request->set_reply_header(reply_header(header));
  connection->open.emplace(header.request_id, request);
  connection->handlers.start(run_request(connection, request, handlers_[header.method]));
  co_return Result<void>();
}

Task<void> Server::run_request(std::shared_ptr<Connection> connection,
                               std::shared_ptr<Request> request, const Handler& handler) {
  Result<Bytes> result = co_await handler(*request);
  connection->body_bytes -= request->body().size();
  connection->open.erase(request->header().request_id);
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
  Result<void> sent = connection.channel->send(header, {&part, 1});
  // A peer that leaves its replies lying for 64 MiB is not owed more memory.
  if (!sent) connection.channel->close(sent.error());
}

}  // namespace

std::unique_ptr<RpcServer> RpcServer::create(os::Env env, Options options) {
  return std::make_unique<Server>(env, std::move(options));
}

}  // namespace mooncake::net
