// Data with requests and replies: it arrives whole, what does not fit fails alone, and when a call
// has ended, its caller's memory is neither read nor written any more: the test overwrites it and
// looks. Each scenario runs on in-process pairs with a fake clock and over loopback sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "net/net_testing.h"
#include "net/rpc_codec.h"

namespace mooncake::net {
namespace {

using namespace testing;

// Where a scenario runs. `server` is set before the first call.
class World {
 public:
  virtual ~World() = default;
  virtual os::Env env() = 0;
  virtual bool run(Task<bool> task) = 0;
  virtual Task<ChannelPair> pair() = 0;
};

class PairWorld final : public World {
 public:
  os::Env env() override { return net_.env(); }
  bool run(Task<bool> task) override { return net_.executor.run(std::move(task)); }
  Task<ChannelPair> pair() override { co_return make_channel_pair(net_.executor); }

 private:
  SimNet net_;
};

class LoopbackWorld final : public World {
 public:
  os::Env env() override { return net_.env(); }
  bool run(Task<bool> task) override { return net_.run(std::move(task)); }
  Task<ChannelPair> pair() override { return socket_pair(env()); }

 private:
  SocketNet net_;
};

Task<Result<std::unique_ptr<Channel>>> serve_pair(World* world, RpcServer* server) {
  ChannelPair ends = co_await world->pair();
  server->serve(std::move(ends.second));
  co_return std::move(ends.first);
}

std::unique_ptr<RpcClient> client_of(World& world, RpcServer& server) {
  RpcClient::Options options;
  options.identity = identity(1);
  return RpcClient::create(
      world.env(), [at = &world, to = &server](base::TimePoint) { return serve_pair(at, to); },
      options);
}

std::unique_ptr<RpcServer> server_in(World& world) {
  RpcServer::Options options;
  options.identity = identity(2);
  std::unique_ptr<RpcServer> server = RpcServer::create(world.env(), options);
  server->handle(kEcho, echo);
  return server;
}

Task<void> stop(RpcClient& client, RpcServer& server) {
  co_await client.stop();
  co_await server.stop();
}

std::size_t number(base::ConstBuffer body) {
  return static_cast<std::size_t>(std::stoull(std::string(base::as_text(body))));
}

// Body: how many bytes to expect. Answers with their hash.
struct Taker {
  Bytes bytes;
  Result<void> result;
  Task<Result<Bytes>> operator()(ServerCall& call) {
    bytes.clear();
    VectorSink sink(bytes, 100'000);
    result = co_await call.receive_data(sink, number(call.body()));
    if (!result) co_return fail(result.error());
    co_return to_bytes("taken");
  }
};

// Body: how many bytes to send, out of `bytes`.
struct Giver {
  Bytes bytes;
  bool staged = false;
  Task<Result<Bytes>> operator()(ServerCall& call) {
    const base::ConstBuffer part = base::ConstBuffer(bytes).first(number(call.body()));
    if (staged) {
      EXPECT_TRUE(call.stage_data({&part, 1}));
    } else {
      BufferSource source({&part, 1});
      MC_CO_CHECK(co_await call.send_data(source, part.size()));
    }
    co_return to_bytes("given");
  }
};

struct Data {
  explicit Data(Bytes bytes_) : bytes(std::move(bytes_)) { split(); }
  // In three buffers, one of them empty.
  void split() {
    const base::ConstBuffer all(bytes);
    const std::size_t cut = all.size() / 3;
    parts = {all.first(cut), all.first(0), all.subspan(cut)};
  }
  Bytes bytes;
  std::vector<base::ConstBuffer> parts;
};

struct Room {
  explicit Room(std::size_t size) : bytes(size) {
    const base::MutableBuffer all(bytes);
    parts = {all.first(size / 3), all.first(0), all.subspan(size / 3)};
  }
  Bytes bytes;
  std::vector<base::MutableBuffer> parts;
};

CallOptions within(World& world, base::Duration duration) {
  CallOptions options;
  options.deadline = world.env().now() + duration;
  return options;
}

class RpcDataTest : public ::testing::TestWithParam<bool> {
 protected:
  RpcDataTest() {
    if (GetParam()) {
      world = std::make_unique<LoopbackWorld>();
    } else {
      world = std::make_unique<PairWorld>();
    }
  }
  std::unique_ptr<World> world;
};
INSTANTIATE_TEST_SUITE_P(Over, RpcDataTest, ::testing::Values(false, true), [](const auto& chosen) {
  return std::string(chosen.param ? "Sockets" : "Pairs");
});

const std::size_t kSizes[] = {
    1, 4096, kCopiedData, kCopiedData + 1, kMaxDataPayload, 2 * kMaxDataPayload + 12345};

Task<bool> data_arrives_whole(World& world) {
  std::unique_ptr<RpcServer> server = server_in(world);
  std::unique_ptr<RpcClient> client = client_of(world, *server);
  Taker taker;
  Giver giver;
  giver.bytes = pattern(20u << 20);
  server->handle(kPut, [&](ServerCall& call) { return taker(call); });
  server->handle(kGet, [&](ServerCall& call) { return giver(call); });
  for (std::size_t size : kSizes) {
    const Data data(pattern(size, size));
    const Bytes body = to_bytes(std::to_string(size));
    CallOptions put = within(world, seconds(20));
    put.data = data.parts;
    Result<Reply> reply = co_await client->call(kPut, body, put);
    EXPECT_TRUE(reply) << reply.error().message();
    EXPECT_EQ(taker.bytes, data.bytes) << size;
    for (bool staged : {false, true}) {
      giver.staged = staged;
      Room room(size + 10);
      CallOptions get = within(world, seconds(20));
      get.data_room = room.parts;
      reply = co_await client->call(kGet, body, get);
      EXPECT_TRUE(reply) << reply.error().message();
      EXPECT_EQ(reply ? reply->data_bytes : 0, size);
      EXPECT_TRUE(std::equal(room.bytes.begin(), room.bytes.begin() + static_cast<long>(size),
                             giver.bytes.begin()));
    }
  }
  EXPECT_EQ(server->counters().connections, 1u);
  co_await stop(*client, *server);
  co_return true;
}
TEST_P(RpcDataTest, ArrivesWholeBothWays) { world->run(data_arrives_whole(*world)); }

Task<bool> misfits(World& world) {
  std::unique_ptr<RpcServer> server = server_in(world);
  std::unique_ptr<RpcClient> client = client_of(world, *server);
  Taker taker;
  Giver giver;
  giver.bytes = pattern(300'000);
  server->handle(kPut, [&](ServerCall& call) { return taker(call); });
  server->handle(kGet, [&](ServerCall& call) { return giver(call); });
  const Data data(pattern(200'000));
  CallOptions put = within(world, seconds(10));
  put.data = data.parts;
  for (const char* expected : {"199999", "200001", "0", "1"}) {
    Result<Reply> reply = co_await client->call(kPut, base::as_bytes(expected), put);
    EXPECT_FALSE(reply) << expected;
    EXPECT_EQ(reply ? Code::kOk : reply.error().code(), Code::kProtocolError) << expected;
  }
  // None came, although some were expected; and none were expected, and none came.
  Result<Reply> reply =
      co_await client->call(kPut, base::as_bytes("5"), within(world, seconds(10)));
  EXPECT_EQ(reply.error().code(), Code::kProtocolError);
  reply = co_await client->call(kPut, base::as_bytes("0"), within(world, seconds(10)));
  EXPECT_TRUE(reply);
  // Nobody takes it.
  reply = co_await client->call(kEcho, base::as_bytes("untaken"), put);
  EXPECT_TRUE(reply);

  Room room(100);
  CallOptions get = within(world, seconds(10));
  get.data_room = room.parts;
  reply = co_await client->call(kGet, base::as_bytes("101"), get);
  EXPECT_EQ(reply.error().code(), Code::kProtocolError);
  EXPECT_EQ(room.bytes, Bytes(100));
  reply = co_await client->call(kGet, base::as_bytes("100"), get);
  EXPECT_TRUE(reply);
  EXPECT_EQ(server->counters().accepted, 1u);  // all of it on one connection
  EXPECT_EQ(server->counters().malformed, 0u);
  co_await stop(*client, *server);
  co_return true;
}
TEST_P(RpcDataTest, WhatDoesNotFitFailsAlone) { world->run(misfits(*world)); }

// A peer that has greeted and reads only when it is told to.
struct Sleeper {
  std::unique_ptr<Channel> channel;
  Bytes data;                        // of data frames
  std::vector<std::uint16_t> flags;  // of all frames
  bool greeted = false;
};
Task<void> greet_sleeper(World* world, Sleeper* sleeper) {
  sleeper->greeted = (co_await receive_greeting(world->env(), *sleeper->channel, identity(2),
                                                world->env().now() + seconds(5)))
                         .has_value();
}
Task<Result<std::unique_ptr<Channel>>> connect_sleeper(World* world, Sleeper* sleeper,
                                                       base::TaskGroup* group) {
  ChannelPair ends = co_await world->pair();
  sleeper->channel = std::move(ends.second);
  group->start(greet_sleeper(world, sleeper));
  co_return std::move(ends.first);
}
Task<void> read_until_end(Sleeper& sleeper) {
  for (;;) {
    Result<FrameHeader> header = co_await sleeper.channel->receive();
    if (!header) co_return;
    sleeper.flags.push_back(header->flags);
    Result<Bytes> body = co_await receive_body(*sleeper.channel, header->payload_length);
    if (!body) co_return;
    if (header->flags & kData) sleeper.data.insert(sleeper.data.end(), body->begin(), body->end());
    if ((header->flags & (kData | kMore)) == kData) co_return;
  }
}

Task<bool> late_while_leaving(World& world) {
  Sleeper sleeper;
  base::TaskGroup group;
  RpcClient::Options options;
  options.identity = identity(1);
  std::unique_ptr<RpcClient> client = RpcClient::create(
      world.env(),
      [at = &world, s = &sleeper, g = &group](base::TimePoint) {
        return connect_sleeper(at, s, g);
      },
      options);
  Data data(pattern(24u << 20));
  const Bytes original = data.bytes;
  CallOptions put = within(world, milliseconds(100));
  put.data = data.parts;
  const base::TimePoint deadline = put.deadline;
  Result<Reply> reply = co_await client->call(kPut, base::as_bytes("x"), put);
  EXPECT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kDeadlineExceeded);
  EXPECT_GE(world.env().now(), deadline);
  std::fill(data.bytes.begin(), data.bytes.end(), std::byte{255});
  data.parts.clear();

  co_await read_until_end(sleeper);
  EXPECT_TRUE(sleeper.greeted);
  EXPECT_EQ(sleeper.flags.back(), kData | kAbandon);
  // Some of it as it was, then zeros to the end of the frame; nothing that was written later.
  const auto end = std::mismatch(sleeper.data.begin(), sleeper.data.end(), original.begin()).first;
  EXPECT_TRUE(std::all_of(end, sleeper.data.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(sleeper.data.size() % kMaxDataPayload, 0u);
  EXPECT_LT(sleeper.data.size(), original.size());
  co_await client->stop();
  co_await group.join();
  co_return true;
}
TEST_P(RpcDataTest, ALateCallsDataIsNotReadAfterItsReturn) {
  world->run(late_while_leaving(*world));
}

Task<bool> late_at_handler(World& world) {
  std::unique_ptr<RpcServer> server = server_in(world);
  ChannelPair ends = co_await world.pair();
  server->serve(std::move(ends.second));
  Taker taker;
  server->handle(kPut, [&](ServerCall& call) { return taker(call); });
  Result<PeerIdentity> peer =
      co_await greet(world.env(), *ends.first, identity(1), "x", world.env().now() + seconds(5));
  EXPECT_TRUE(peer);
  const Bytes bytes = pattern(1000);
  const base::ConstBuffer body = base::as_bytes("2000"), data(bytes);
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(kPut);
  header.flags = kMore;
  header.request_id = 9;
  header.deadline_us = 50'000;
  EXPECT_TRUE(ends.first->send(header, {&body, 1}));
  header.flags = kMore | kData;
  EXPECT_TRUE(ends.first->send(header, {&data, 1}));
  // The rest does not come in time; the handler is told, and late data goes nowhere.
  Result<FrameHeader> reply = co_await ends.first->receive();
  EXPECT_EQ(reply->flags, kReply | kError);
  Result<Bytes> error = co_await receive_body(*ends.first, reply->payload_length);
  EXPECT_EQ(decode_error(*error).code(), Code::kDeadlineExceeded);
  const Bytes before = taker.bytes;
  header.flags = kData;
  EXPECT_TRUE(ends.first->send(header, {&data, 1}));
  header.request_id = 10;
  header.flags = 0;
  header.method = static_cast<std::uint16_t>(kEcho);
  EXPECT_TRUE(ends.first->send(header, {&body, 1}));
  reply = co_await ends.first->receive();
  EXPECT_EQ(reply->request_id, 10u);
  EXPECT_EQ(taker.bytes, before);
  ends.first->close(Error(Code::kCancelled));
  co_await server->stop();
  co_return true;
}
TEST_P(RpcDataTest, LateDataDoesNotReachTheHandlersSink) { world->run(late_at_handler(*world)); }

Task<bool> abandoned(World& world) {
  std::unique_ptr<RpcServer> server = server_in(world);
  ChannelPair ends = co_await world.pair();
  server->serve(std::move(ends.second));
  Taker taker;
  server->handle(kPut, [&](ServerCall& call) { return taker(call); });
  EXPECT_TRUE(
      co_await greet(world.env(), *ends.first, identity(1), "x", world.env().now() + seconds(5)));
  const Bytes bytes = pattern(1000);
  const base::ConstBuffer body = base::as_bytes("1000"), data(bytes);
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(kPut);
  header.flags = kMore;
  header.request_id = 9;
  header.deadline_us = 5'000'000;
  EXPECT_TRUE(ends.first->send(header, {&body, 1}));
  header.flags = kMore | kData;
  EXPECT_TRUE(ends.first->send(header, {&data, 1}));
  header.flags = kData | kAbandon;
  EXPECT_TRUE(ends.first->send(header, {}));
  Result<FrameHeader> reply = co_await ends.first->receive();
  Result<Bytes> error = co_await receive_body(*ends.first, reply->payload_length);
  EXPECT_EQ(decode_error(*error).code(), Code::kCancelled);
  ends.first->close(Error(Code::kCancelled));
  co_await server->stop();
  co_return true;
}
TEST_P(RpcDataTest, AnAbandonedMessageIsNotBelieved) { world->run(abandoned(*world)); }

// A call whose data nobody takes for the moment: the handler waits in receive_data when the server
// stops.
Task<void> stop_later(os::Env env, RpcServer& server) {
  co_await env.executor.yield();
  co_await server.stop();
}
Task<bool> stop_while_taking(World& world) {
  std::unique_ptr<RpcServer> server = server_in(world);
  ChannelPair ends = co_await world.pair();
  server->serve(std::move(ends.second));
  Taker taker;
  bool called = false;
  server->handle(kPut, [&](ServerCall& call) {
    called = true;
    return taker(call);
  });
  EXPECT_TRUE(
      co_await greet(world.env(), *ends.first, identity(1), "x", world.env().now() + seconds(5)));
  const base::ConstBuffer body = base::as_bytes("1000");
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(kPut);
  header.flags = kMore;
  header.deadline_us = 60'000'000;
  EXPECT_TRUE(ends.first->send(header, {&body, 1}));
  while (!called)
    co_await world.env().executor.yield();
  co_await stop_later(world.env(), *server);
  EXPECT_FALSE(taker.result);
  EXPECT_EQ(taker.result.error().code(), Code::kCancelled);
  Result<FrameHeader> end = co_await ends.first->receive();
  EXPECT_FALSE(end);
  co_return true;
}
TEST_P(RpcDataTest, StopEndsAHandlerThatWaitsForData) { world->run(stop_while_taking(*world)); }

// Passes bytes between a client and a server, and holds back what the server says when told to.
class Relay {
 public:
  // Holds after `hold_after` bytes from the server.
  Relay(std::uint16_t server_port, std::size_t hold_after) : left_(hold_after) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = loopback(0);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at);
    ::listen(listener_, 1);
    socklen_t size = sizeof at;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this, server_port] { run(server_port); });
  }
  ~Relay() {
    ended_ = true;
    thread_.join();
    for (int fd : {listener_, client_, server_})
      ::close(fd);
  }
  std::uint16_t port() const { return port_; }
  void release() { left_ = SIZE_MAX; }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }
  void run(std::uint16_t server_port) {
    client_ = ::accept(listener_, nullptr, nullptr);
    server_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to = loopback(server_port);
    ::connect(server_, reinterpret_cast<sockaddr*>(&to), sizeof to);
    std::vector<char> buffer(65536);
    while (!ended_) {
      const std::size_t left = left_;
      pollfd fds[2] = {{client_, POLLIN, 0}, {left > 0 ? server_ : -1, POLLIN, 0}};
      ::poll(fds, 2, 5);
      for (int i : {0, 1}) {
        if ((fds[i].revents & (POLLIN | POLLHUP)) == 0) continue;
        const std::size_t limit = i == 0 ? buffer.size() : std::min(buffer.size(), left);
        const ssize_t size = ::read(fds[i].fd, buffer.data(), limit);
        if (size <= 0) return;
        for (ssize_t sent = 0; sent < size;) {
          const ssize_t step = ::send(i == 0 ? server_ : client_, buffer.data() + sent,
                                      static_cast<std::size_t>(size - sent), MSG_NOSIGNAL);
          if (step <= 0) return;
          sent += step;
        }
        if (i == 1 && left != SIZE_MAX) left_ -= static_cast<std::size_t>(size);
      }
    }
  }

  int listener_ = -1, client_ = -1, server_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<std::size_t> left_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

Task<Address> listen_giver(RpcServer& server) {
  const Address any("127.0.0.1", 0);
  Result<Address> bound = server.listen(any);
  co_return *bound;
}
Task<Result<Reply>> call_into(RpcClient& client, Method method, std::string body,
                              CallOptions options) {
  co_return co_await client.call(method, base::as_bytes(body), options);
}

// The frame stands still in its middle when the deadline comes; the room belongs to the caller
// again.
TEST(RpcDataRelay, ALateCallsRoomIsNotWrittenAfterItsReturn) {
  SocketNet net;
  RpcServer::Options server_options;
  server_options.identity = identity(2);
  std::unique_ptr<RpcServer> server = RpcServer::create(net.env(), server_options);
  Giver giver;
  giver.bytes = pattern(8u << 20);
  server->handle(kGet, [&](ServerCall& call) { return giver(call); });
  server->handle(kEcho, echo);
  const Address at = net.run(listen_giver(*server));
  Relay relay(at.port, 3u << 20);
  RpcClient::Options options;
  options.identity = identity(1);
  std::unique_ptr<RpcClient> client =
      RpcClient::create(net.env(), Address("127.0.0.1", relay.port()), options);

  Room room(8u << 20);
  CallOptions get;
  get.deadline = net.in(milliseconds(300));
  get.data_room = room.parts;
  Result<Reply> reply = net.run(call_into(*client, kGet, std::to_string(8u << 20), get));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(std::equal(room.bytes.begin(), room.bytes.begin() + (2 << 20), giver.bytes.begin()));
  std::fill(room.bytes.begin(), room.bytes.end(), std::byte{255});
  relay.release();

  CallOptions next;
  next.deadline = net.in(seconds(10));
  reply = net.run(call_into(*client, kEcho, "same connection", next));
  ASSERT_TRUE(reply) << reply.error().message();
  EXPECT_EQ(server->counters().accepted, 1u);
  EXPECT_TRUE(std::all_of(room.bytes.begin(), room.bytes.end(),
                          [](std::byte b) { return b == std::byte{255}; }));
  net.run(stop(*client, *server));
}

}  // namespace
}  // namespace mooncake::net
