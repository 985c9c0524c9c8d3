// TCP, Unix sockets and rings: names and literals to sockets, sockets to channels.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <exception>
#include <utility>
#include <vector>

#include "net/asio_access.h"
#include "net/ring_network.h"
#include "net/socket_network.h"

namespace mooncake::net {
namespace {

using boost::asio::ip::tcp;
using local = boost::asio::local::stream_protocol;
using boost::system::error_code;
using Endpoints = std::vector<tcp::endpoint>;

// A host that vanishes is noticed within half a minute, also on an idle connection.
constexpr int kKeepAliveIdleSeconds = 15;
constexpr int kKeepAliveIntervalSeconds = 5;
constexpr int kKeepAliveProbes = 3;
constexpr unsigned kUnacknowledgedMs = 30'000;

template <typename T>
void set_option(int fd, int level, int name, T value) {
  // Options are wishes: a connection works without them.
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

// A child of the host program must not keep our ports and connections open.
void close_on_exec(int fd) { (void)::fcntl(fd, F_SETFD, FD_CLOEXEC); }

void tune(int fd) {
  close_on_exec(fd);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs);
}

std::string describe(const tcp::endpoint& endpoint) {
  return to_string(Address(endpoint.address().to_string(), endpoint.port()));
}

Error unreachable(const Address& address, const error_code& error) {
  return Error(Code::kUnreachable, to_string(address) + ": " + error.message());
}

// Unix sockets have no window that grows by itself; the kernel takes what its limit allows.
constexpr int kUnixSendBuffer = 4 << 20;

bool is_unix(const Address& address) { return address.host.starts_with('@'); }

// Abstract: the name follows a zero byte.
local::endpoint unix_endpoint(const Address& address) {
  std::string name = address.host;
  name.front() = '\0';
  return local::endpoint(name);
}

Result<std::unique_ptr<Channel>> channel_of(Reactor& reactor, local::socket socket) {
  PeerInfo peer;
  peer.address = "unix socket";
  ucred credentials{};
  socklen_t size = sizeof credentials;
  const int native = socket.native_handle();
  if (::getsockopt(native, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
    peer.pid = credentials.pid;
  }
  close_on_exec(native);
  set_option(native, SOL_SOCKET, SO_SNDBUF, kUnixSendBuffer);
  try {
    return make_socket_channel(reactor, socket.release(), AF_UNIX, std::move(peer));
  } catch (const std::exception& e) {
    return fail(Code::kSystemCall, std::string("socket: ") + e.what());
  }
}

Result<std::unique_ptr<Channel>> channel_of(Reactor& reactor, tcp::socket socket) {
  error_code error;
  const tcp::endpoint remote = socket.remote_endpoint(error);
  if (error) return fail(Code::kConnectionLost, "socket: " + error.message());
  PeerInfo peer;
  peer.address = describe(remote);
  try {
    const int fd = socket.release();
    tune(fd);
    return make_socket_channel(reactor, fd, remote.protocol().family(), std::move(peer));
  } catch (const std::exception& e) {
    return fail(Code::kSystemCall, std::string("socket: ") + e.what());
  }
}

// An outcome that Asio or the deadline sets, whichever is first. Both hold it.
template <typename T>
struct Outcome {
  explicit Outcome(os::Executor& executor) : done(executor) {}
  os::Completion<std::pair<error_code, T>> done;
  void set(const error_code& error, T value) { done.set({error, std::move(value)}); }
};

bool is_shortage(const error_code& error) {
  return error == boost::asio::error::no_descriptors ||
         error == boost::system::errc::too_many_files_open_in_system;
}

template <typename Protocol>
class SocketListener final : public Listener {
 public:
  using Acceptor = typename Protocol::acceptor;
  using Socket = typename Protocol::socket;

  SocketListener(Reactor& reactor, Acceptor acceptor, Address address)
      : state_(std::make_shared<State>(reactor, std::move(acceptor))),
        address_(std::move(address)) {}
  ~SocketListener() override { close(); }

  Task<Result<std::unique_ptr<Channel>>> accept() override { return accept_next(state_); }
  const Address& address() const override { return address_; }
  void close() override {
    error_code ignored;
    state_->acceptor.close(ignored);
    state_->closed = true;
    if (state_->waiter) state_->waiter->set(boost::asio::error::operation_aborted, false);
  }

 private:
  struct State {
    State(Reactor& reactor_, Acceptor acceptor_)
        : reactor(reactor_), acceptor(std::move(acceptor_)) {}
    Reactor& reactor;
    Acceptor acceptor;
    std::shared_ptr<Outcome<bool>> waiter;
    bool closed = false;
  };

  using Happened = std::pair<error_code, bool>;
  static Task<Result<std::unique_ptr<Channel>>> accept_next(std::shared_ptr<State> state);
  // `begin(acceptor, handler)` starts what is waited for.
  template <typename Begin>
  static Task<Happened> await_event(std::shared_ptr<State> state, Begin begin);

  std::shared_ptr<State> state_;
  const Address address_;
};

template <typename Protocol>
template <typename Begin>
auto SocketListener<Protocol>::await_event(std::shared_ptr<State> state, Begin begin)
    -> Task<Happened> {
  auto outcome = std::make_shared<Outcome<bool>>(state->reactor);
  state->waiter = outcome;
  begin(state->acceptor, [state, outcome](const error_code& error) {
    Reactor::Turn turn(state->reactor);
    outcome->set(error, true);
  });
  Happened got = co_await outcome->done;
  state->waiter.reset();
  co_return got;
}

// The kernel says that there is no descriptor before it looks whether there is somebody to accept.
template <typename Protocol>
Task<Result<std::unique_ptr<Channel>>> SocketListener<Protocol>::accept_next(
    std::shared_ptr<State> state) {
  bool somebody_waits = false;
  while (!state->closed) {
    auto socket = std::make_shared<Socket>(state->acceptor.get_executor());
    const auto accept = [socket](Acceptor& acceptor, auto handler) {
      acceptor.async_accept(*socket,
                            [socket, handler](const error_code& error) { handler(error); });
    };
    const Happened got = co_await await_event(state, accept);
    if (state->closed) break;
    if (got.first == boost::asio::error::connection_aborted) continue;
    if (is_shortage(got.first) && !std::exchange(somebody_waits, true)) {
      const auto wait = [](Acceptor& acceptor, auto handler) {
        acceptor.async_wait(Acceptor::wait_read, handler);
      };
      (void)co_await await_event(state, wait);
      continue;
    }
    if (got.first) {
      const Code code = is_shortage(got.first) ? Code::kBusy : Code::kSystemCall;
      co_return fail(code, "accept: " + got.first.message());
    }
    Result<std::unique_ptr<Channel>> channel = channel_of(state->reactor, std::move(*socket));
    if (channel || channel.error().code() != Code::kConnectionLost) co_return channel;
  }
  co_return fail(Code::kCancelled, "listener closed");
}

class SocketNetwork final : public Network {
 public:
  explicit SocketNetwork(Reactor& reactor) : reactor_(reactor) {}

  Task<Result<std::unique_ptr<Channel>>> connect(Address to, base::TimePoint deadline) override;
  Result<std::unique_ptr<Listener>> listen(const Address& at) override;

 private:
  boost::asio::io_context& io() { return *io_context_of(reactor_); }
  Task<Result<Endpoints>> resolve(Address address, base::TimePoint deadline);
  Task<Result<std::unique_ptr<Channel>>> connect_to(tcp::endpoint endpoint, Address name,
                                                    base::TimePoint deadline);
  Result<std::unique_ptr<Listener>> listen_on(const tcp::endpoint& endpoint, const Address& at);
  Result<std::unique_ptr<Channel>> connect_unix(const Address& to);
  Result<std::unique_ptr<Listener>> listen_unix(const Address& at);

  Reactor& reactor_;
};

Error too_late(const Address& address, std::string_view what) {
  return Error(Code::kDeadlineExceeded, fmt::format("{} {}", what, to_string(address)));
}

Task<Result<Endpoints>> SocketNetwork::resolve(Address address, base::TimePoint deadline) {
  error_code error;
  const auto literal = boost::asio::ip::make_address(address.host, error);
  if (!error) co_return Endpoints{tcp::endpoint(literal, address.port)};

  auto resolver = std::make_shared<tcp::resolver>(io());
  auto outcome = std::make_shared<Outcome<Endpoints>>(reactor_);
  const os::TimerId timer = reactor_.run_at(deadline, [outcome, resolver] {
    resolver->cancel();
    outcome->set(boost::asio::error::timed_out, {});
  });
  resolver->async_resolve(address.host, std::to_string(address.port),
                          tcp::resolver::numeric_service,
                          [&reactor = reactor_, outcome, resolver](
                              const error_code& failed, const tcp::resolver::results_type& found) {
                            Reactor::Turn turn(reactor);
                            outcome->set(failed, Endpoints(found.begin(), found.end()));
                          });
  std::pair<error_code, Endpoints> got = co_await outcome->done;
  reactor_.cancel(timer);
  if (got.first == boost::asio::error::timed_out) co_return fail(too_late(address, "resolve"));
  if (got.first) co_return fail(unreachable(address, got.first));
  co_return std::move(got.second);
}

Task<Result<std::unique_ptr<Channel>>> SocketNetwork::connect_to(tcp::endpoint endpoint,
                                                                 Address name,
                                                                 base::TimePoint deadline) {
  auto socket = std::make_shared<tcp::socket>(io());
  auto outcome = std::make_shared<Outcome<bool>>(reactor_);
  const os::TimerId timer =
      reactor_.run_at(deadline, [outcome] { outcome->set(boost::asio::error::timed_out, false); });
  socket->async_connect(endpoint, [&reactor = reactor_, socket, outcome](const error_code& error) {
    Reactor::Turn turn(reactor);
    outcome->set(error, true);
  });
  std::pair<error_code, bool> got = co_await outcome->done;
  reactor_.cancel(timer);
  if (!got.first) co_return channel_of(reactor_, std::move(*socket));
  error_code ignored;
  socket->close(ignored);
  if (!got.second) co_return fail(too_late(name, "connect to"));
  co_return fail(unreachable(name, got.first));
}

Task<Result<std::unique_ptr<Channel>>> SocketNetwork::connect(Address to,
                                                              base::TimePoint deadline) {
  if (deadline <= reactor_.now()) co_return fail(too_late(to, "connect to"));
  if (is_ring(to)) co_return connect_rings(reactor_, to);
  if (is_unix(to)) co_return connect_unix(to);
  MC_CO_TRY(const Endpoints endpoints, co_await resolve(to, deadline));
  Error last(Code::kUnreachable, to_string(to) + ": the name has no address");
  for (const tcp::endpoint& endpoint : endpoints) {
    Result<std::unique_ptr<Channel>> channel = co_await connect_to(endpoint, to, deadline);
    if (channel) co_return channel;
    last = std::move(channel).error();
    if (last.code() == Code::kDeadlineExceeded) break;
  }
  co_return fail(std::move(last));
}

// Resolves a name on the spot: servers listen at their start, on literals or names of their own
// host.
Result<std::unique_ptr<Listener>> SocketNetwork::listen(const Address& at) {
  if (is_ring(at)) return listen_rings(reactor_, at);
  if (is_unix(at)) return listen_unix(at);
  error_code error;
  const auto literal = boost::asio::ip::make_address(at.host, error);
  if (!error) return listen_on(tcp::endpoint(literal, at.port), at);
  tcp::resolver resolver(io());
  const auto found =
      resolver.resolve(at.host, std::to_string(at.port),
                       tcp::resolver::numeric_service | tcp::resolver::passive, error);
  if (error || found.empty()) {
    return fail(Code::kInvalidArgument,
                fmt::format("listen on {}: {}", to_string(at), error.message()));
  }
  // Where a name has both, peers rather know the IPv4 address.
  auto chosen = std::find_if(found.begin(), found.end(), [](const auto& entry) {
    return entry.endpoint().protocol() == tcp::v4();
  });
  if (chosen == found.end()) chosen = found.begin();
  return listen_on(chosen->endpoint(), at);
}

Result<std::unique_ptr<Listener>> SocketNetwork::listen_on(const tcp::endpoint& endpoint,
                                                           const Address& at) {
  tcp::acceptor acceptor(io());
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) close_on_exec(acceptor.native_handle());
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.address().is_v6() && endpoint.address().is_unspecified()) {
    acceptor.set_option(boost::asio::ip::v6_only(false), error);
  }
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  tcp::endpoint bound;
  if (!error) bound = acceptor.local_endpoint(error);
  if (error == boost::asio::error::address_in_use) {
    return fail(Code::kAddressInUse, to_string(at));
  }
  if (error) {
    return fail(Code::kSystemCall, fmt::format("listen on {}: {}", to_string(at), error.message()));
  }
  return std::make_unique<SocketListener<tcp>>(reactor_, std::move(acceptor),
                                               Address(at.host, bound.port()));
}

// Done at once, or not: a full queue of a Unix socket does not make one wait.
Result<std::unique_ptr<Channel>> SocketNetwork::connect_unix(const Address& to) {
  local::socket socket(io());
  error_code error;
  socket.open(local(), error);
  if (!error) socket.non_blocking(true, error);
  if (!error) (void)socket.connect(unix_endpoint(to), error);
  if (error) return fail(unreachable(to, error));
  return channel_of(reactor_, std::move(socket));
}

Result<std::unique_ptr<Listener>> SocketNetwork::listen_unix(const Address& at) {
  local::acceptor acceptor(io());
  error_code error;
  acceptor.open(local(), error);
  if (!error) close_on_exec(acceptor.native_handle());
  if (!error) acceptor.bind(unix_endpoint(at), error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (error == boost::asio::error::address_in_use) return fail(Code::kAddressInUse, at.host);
  if (error) {
    return fail(Code::kSystemCall, fmt::format("listen on {}: {}", at.host, error.message()));
  }
  return std::make_unique<SocketListener<local>>(reactor_, std::move(acceptor), at);
}

}  // namespace

std::unique_ptr<Network> make_socket_network(Reactor& reactor) {
  return std::make_unique<SocketNetwork>(reactor);
}

}  // namespace mooncake::net
