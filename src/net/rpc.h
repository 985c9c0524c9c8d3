// RPC over channels: many requests at once on one connection, each with a deadline.
//
// A message is one body frame (FlatBuffers, verified by the handler before use), after which data
// frames may follow in either direction (kData, up to kMaxDataPayload each; kMore on all frames of
// a message but its last). Write: body, data, an empty data frame -> reply. Read: body -> data,
// reply. The empty frame and the reply body come last, so that the sender can still say (kAbandon,
// kError) that its data is not to be believed.
//
// Request ids rise on a connection; one that is reused while open closes it. Data of an unknown id
// is discarded; data beyond what the handler asked for is kProtocolError for that request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/metrics.h"
#include "net/channel.h"
#include "net/handshake.h"
#include "net/network.h"
#include "os/cancel.h"
#include "os/env.h"

namespace mooncake::net {

using Bytes = std::vector<std::byte>;

struct RpcLimits {
  // Whose hello is over. For one more, an idle one is closed: of the peer (incarnation) that has
  // the most of these, the one that has been idle for the longest. When all are busy: kBusy.
  std::size_t max_connections = 4096;
  // Beside these, whose hello is not over. Beyond, the oldest is closed for the newest: whoever
  // floods is in the way of himself.
  std::size_t max_greeting = 512;
  // Through rings, which take 516 KiB of memory each. For further clients sockets are good enough.
  std::size_t max_ring_connections = 256;
  std::size_t max_requests_per_connection = 1024;    // beyond: kBusy with retry-after
  std::size_t max_bytes_per_connection = 64u << 20;  // request bodies being worked on
  // Requests, and replies that wait to be read, of all connections together. Beyond half of it:
  // kBusy for connections that hold more than their share of the rest, and whoever has held the
  // most for more than 5 s is closed.
  std::size_t max_bytes = 1u << 30;
  base::Duration handshake_timeout = std::chrono::seconds(5);
  base::Duration stall_timeout = std::chrono::seconds(30);  // a frame once begun must make progress
  base::Duration max_deadline = std::chrono::minutes(10);   // also for a body to arrive
  // With no request being worked on and no reply unread: closed. Clients go first, see below.
  base::Duration idle_timeout = std::chrono::minutes(10);
};

// One request as its handler sees it. Lives until the handler's task has ended.
class ServerCall {
 public:
  virtual ~ServerCall() = default;

  virtual base::ConstBuffer body() const = 0;
  virtual base::TimePoint deadline() const = 0;
  virtual const PeerIdentity& peer() const = 0;
  virtual const PeerInfo& connection() const = 0;
  virtual std::uint64_t trace_id() const = 0;
  // Leader epoch of the request's frame. A server that knows a higher one answers kStaleEpoch
  // before the handler is called; what a request claims never raises what the server knows.
  virtual base::Epoch epoch() const = 0;

  // Takes exactly `size` bytes of the message's data frames and its end. Must be awaited before the
  // handler suspends otherwise, if at all; data that nobody takes is discarded. kCancelled when the
  // sender abandoned it, kProtocolError when it is not `size` bytes, kDeadlineExceeded.
  virtual Task<Result<void>> receive_data(PayloadSink& sink, std::size_t size) = 0;
  // Sends data before the reply, cut into frames. Returns when `source` is referred to no more.
  virtual Task<Result<void>> send_data(PayloadSource& source, std::size_t size) = 0;
  // Sends data and the reply together when the handler returns; the bytes are copied here and now.
  // For small data that must be checked after the copy.
  // False, and nothing is staged, when some of them can't be read.
  [[nodiscard]] virtual bool stage_data(base::ConstBuffers data) = 0;
};

using Handler = std::function<Task<Result<Bytes>>(ServerCall&)>;

// Accepts connections on any number of listeners and channels, greets, and runs handlers as tasks.
// Once it listens, it offers rings to processes of its host where the network has them. Expired
// requests are shed before work. Without a descriptor for a new connection, the oldest is closed
// that says no hello, else an idle one as for RpcLimits::max_connections. Executor thread only.
class RpcServer {
 public:
  struct Options {
    Identity identity;
    RpcLimits limits;
    // Highest leader epoch this process knows; goes out in each frame. May be null.
    const base::Epoch* epoch = nullptr;
    // Charged with what limits.max_bytes bounds, which is short as soon as this is, too, and with
    // rings. May be null; else it outlives the server.
    base::Budget* budget = nullptr;
  };
  static std::unique_ptr<RpcServer> create(os::Env env, Options options);
  virtual ~RpcServer() = default;

  virtual void handle(Method method, Handler handler) = 0;
  virtual Result<Address> listen(const Address& at) = 0;
  // Serves one connection that was made otherwise (in-process pairs).
  virtual void serve(std::unique_ptr<Channel> channel) = 0;
  // Called after a peer's last connection has gone and its handlers have ended.
  virtual void on_disconnect(std::function<void(const PeerIdentity&)> callback) = 0;
  // Closes everything and waits for the handlers. Await it before destruction.
  virtual Task<void> stop() = 0;

  struct Counters {
    std::uint64_t accepted, refused_authentication, refused_version, malformed, over_limit, expired,
        requests, failed_requests;
    // Connections that were closed here: for a newer one; in the middle of a frame that stood
    // still; idle; because others needed the memory that they held.
    std::uint64_t crowded_out, stalled, idle, greedy;
    std::uint64_t connections, held_bytes;  // now; bytes as in RpcLimits::max_bytes
  };
  virtual Counters counters() const = 0;
};

struct CallOptions {
  base::TimePoint deadline{};
  std::uint64_t trace_id = 0;
  base::ConstBuffers data{};                         // sent after the body
  std::span<const base::MutableBuffer> data_room{};  // takes the data that comes before the reply
  os::CancelToken* cancel = nullptr;                 // ends the call early
};

struct Reply {
  Reply() = default;
  Bytes body;
  std::size_t data_bytes = 0;  // that came before it
  PeerIdentity peer;           // who answered
  base::Epoch epoch{};         // as the frame said
};

// A client's view of one server: connects when first needed, again after a loss, and multiplexes
// calls. All calls that wait share one attempt; one that fails ends them (kUnreachable and so on:
// they may have another place to go). The next attempt keeps a distance that grows; calls made
// meanwhile wait for it, at most until their deadline. Calls in flight when the connection is lost
// end with kConnectionLost; whether to repeat one is the caller's decision. A connection on which
// nothing is in flight for long is closed from here, before the server does it; a server that
// closes an idle one earlier, for want of places, says so, and calls that have met this go out
// again on the next connection: no call fails because its server was leaving. Executor thread only.
class RpcClient {
 public:
  struct Options {
    Identity identity;
    std::size_t max_requests_in_flight = 4096;
    base::Duration connect_timeout = std::chrono::seconds(5);
    base::Duration backoff_min = std::chrono::milliseconds(10);
    base::Duration backoff_max = std::chrono::milliseconds(500);
    base::Duration idle_timeout = std::chrono::minutes(5);  // well below that of any server
    base::Epoch* epoch = nullptr;  // raised by what peers say; goes out in each frame. May be null.
    // Goes over to rings when the server is on this host and offers them.
    bool rings = false;
  };
  using Connector = std::function<Task<Result<std::unique_ptr<Channel>>>(base::TimePoint deadline)>;

  static std::unique_ptr<RpcClient> create(os::Env env, Address server, Options options);
  static std::unique_ptr<RpcClient> create(os::Env env, Connector connector, Options options);
  virtual ~RpcClient() = default;

  // Ends by the deadline, or when it is cancelled. On return none of the caller's memory is touched
  // any more: of a message that is still leaving the rest goes out as zeros and is abandoned, what
  // still arrives is discarded; the connection and its other calls go on. Errors of the server's
  // handler come back as it gave them. More data than `data_room` holds is kProtocolError.
  virtual Task<Result<Reply>> call(Method method, base::ConstBuffer body, CallOptions options) = 0;

  // Fails what is in flight with kCancelled; connection and client go on.
  virtual void cancel_calls() = 0;
  // The server is said to be there again: the distance between attempts to connect begins anew.
  virtual void forget_failures() = 0;

  virtual bool connected() const = 0;
  // No call is under way.
  virtual bool idle() const = 0;
  virtual void on_disconnect(std::function<void()> callback) = 0;
  // Fails what is in flight with kCancelled. Await it before destruction.
  virtual Task<void> stop() = 0;
};

}  // namespace mooncake::net
