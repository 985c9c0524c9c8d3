// For the tests of this folder: worlds to run RPC in, and peers that misbehave.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/channel_pair.h"
#include "net/rpc.h"
#include "net/runtime.h"
#include "net/sim_network.h"
#include "os/run_blocking.h"

namespace mooncake::net::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr Method kEcho = static_cast<Method>(0x7001);
inline constexpr Method kPut = static_cast<Method>(0x7002);
inline constexpr Method kGet = static_cast<Method>(0x7003);
inline constexpr Method kWait = static_cast<Method>(0x7004);

inline Bytes to_bytes(std::string_view text) {
  const base::ConstBuffer bytes = base::as_bytes(text);
  return Bytes(bytes.begin(), bytes.end());
}
inline std::string to_text(const Bytes& bytes) { return std::string(base::as_text(bytes)); }

inline Bytes pattern(std::size_t size, std::uint64_t seed = 1) {
  base::Random random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes)
    b = static_cast<std::byte>(1 + random.below(200));  // never 0 or 255
  return bytes;
}

inline Identity identity(std::uint64_t incarnation, std::string secret = {}) {
  Identity self;
  self.role = "test";
  self.name = "node " + std::to_string(incarnation);
  self.boot_id = {1, 2};
  self.incarnation = static_cast<base::Incarnation>(incarnation);
  self.cluster_secret = std::move(secret);
  return self;
}

class NoNetwork final : public Network {
 public:
  Task<Result<std::unique_ptr<Channel>>> connect(Address, base::TimePoint) override {
    co_return fail(Code::kUnreachable, "no network here");
  }
  Result<std::unique_ptr<Listener>> listen(const Address&) override {
    return fail(Code::kNotSupported, "no network here");
  }
};

// Passes everything on; a test overrides what it wants otherwise.
class WrappedChannel : public Channel {
 public:
  explicit WrappedChannel(std::unique_ptr<Channel> inner_) : inner(std::move(inner_)) {}
  Result<void> send(FrameHeader header, base::ConstBuffers payload) override {
    return inner->send(header, payload);
  }
  Task<Result<void>> send_from(FrameHeader header, PayloadSource& source,
                               std::size_t size) override {
    return inner->send_from(header, source, size);
  }
  Backlog backlog() const override { return inner->backlog(); }
  Task<Result<FrameHeader>> receive() override { return inner->receive(); }
  Task<Result<void>> receive_payload(PayloadSink& sink, std::size_t size) override {
    return inner->receive_payload(sink, size);
  }
  void set_version(std::uint8_t version) override { inner->set_version(version); }
  void set_stall_timeout(base::Duration timeout) override { inner->set_stall_timeout(timeout); }
  void close(Error reason) override { inner->close(std::move(reason)); }
  bool closed() const override { return inner->closed(); }
  const PeerInfo& peer() const override { return inner->peer(); }

 protected:
  const std::unique_ptr<Channel> inner;
};

class VectorSink final : public PayloadSink {
 public:
  explicit VectorSink(Bytes& bytes, std::size_t piece = SIZE_MAX) : bytes_(bytes), piece_(piece) {}
  std::span<std::byte> prepare(std::size_t remaining) override {
    bytes_.resize(filled_ + std::min(remaining, piece_));
    return std::span<std::byte>(bytes_).subspan(filled_);
  }
  void commit(std::size_t size) override { filled_ += size; }

 private:
  Bytes& bytes_;
  const std::size_t piece_;
  std::size_t filled_ = 0;
};

// One thread and a fake clock; connections are in-process pairs.
struct SimNet {
  explicit SimNet(std::uint64_t seed = 1) : executor(seed) {}

  os::SimExecutor executor;
  base::Random random{7};
  NoNetwork network;
  os::FakeDisk disk;

  os::Env env() { return {executor, random, network, disk}; }
  base::TimePoint in(base::Duration duration) { return executor.now() + duration; }
};

// Sockets over the loopback, on a thread of its own.
struct SocketNet {
  SocketNet() : runtime(start()) {}

  std::unique_ptr<Runtime> runtime;

  os::Env env() { return runtime->env(); }
  base::TimePoint in(base::Duration duration) { return env().now() + duration; }
  template <typename T>
  T run(Task<T> task) {
    return *os::run_blocking(env().executor, std::move(task));
  }
  void run(Task<void> task) { os::run_blocking(env().executor, std::move(task)); }

 private:
  static std::unique_ptr<Runtime> start() {
    Result<std::unique_ptr<Runtime>> runtime = Runtime::start("test");
    if (!runtime) std::abort();
    return *std::move(runtime);
  }
};

// Two ends of one connection, by default a loopback socket.
using ChannelPair = std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>>;
inline Task<ChannelPair> socket_pair(os::Env env, Address at = Address("127.0.0.1", 0)) {
  Result<std::unique_ptr<Listener>> listener = env.network.listen(at);
  if (!listener) std::abort();
  const Address bound = (*listener)->address();
  Result<std::unique_ptr<Channel>> client =
      co_await env.network.connect(bound, env.now() + seconds(5));
  Result<std::unique_ptr<Channel>> server = co_await (*listener)->accept();
  if (!client || !server) std::abort();
  co_return ChannelPair(*std::move(client), *std::move(server));
}

// Connects to whatever server `server` points to at the time; kUnreachable while it is null.
inline Task<Result<std::unique_ptr<Channel>>> connect_pair(os::Executor* executor,
                                                           RpcServer** server) {
  if (!*server) co_return fail(Code::kUnreachable, "no server");
  auto [mine, theirs] = make_channel_pair(*executor);
  (*server)->serve(std::move(theirs));
  co_return std::move(mine);
}
inline RpcClient::Connector pair_connector(os::Executor& executor, RpcServer*& server) {
  return [to = &executor, at = &server](base::TimePoint) { return connect_pair(to, at); };
}

inline Task<Result<Bytes>> echo(ServerCall& call) {
  co_return Bytes(call.body().begin(), call.body().end());
}

}  // namespace mooncake::net::testing
