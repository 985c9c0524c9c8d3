// Connections through rings: how clients come to them, that they fall back to sockets, who is kept
// out, and that a side which stands still or goes is noticed.
#include "net/ring_network.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/random.h"
#include "net/net_testing.h"
#include "net/ring.h"
#include "os/local_socket.h"
#include "os/shared_mapping.h"

namespace mooncake::net {
namespace {

using namespace testing;
using os::LocalSocket;

constexpr std::size_t kMemory = 4096 + 2 * RingEnd::kCapacity;

struct Offer {
  std::uint64_t magic = 0x676E69722D636D00;
  std::uint32_t version = 1;
  std::uint32_t capacity = RingEnd::kCapacity;
};

// A server and a client on executors of their own, as two processes have.
class RingRpcTest : public ::testing::Test {
 protected:
  RingRpcTest() { start({}); }
  ~RingRpcTest() override {
    if (client) here.run(client->stop());
    if (server) there.run(server->stop());
  }
  void start(RpcServer::Options options) {
    options.identity = identity(1);
    server = RpcServer::create(there.env(), options);
    there.run(serve());
  }
  Task<void> serve() {
    server->handle(kEcho, [this](ServerCall& call) {
      by_rings = call.connection().pid != 0;
      return echo(call);
    });
    Result<Address> bound = server->listen(Address("127.0.0.1", 0));
    EXPECT_TRUE(bound);
    at = *bound;
    co_return;
  }
  void connect(bool rings, std::uint64_t boot = 2) {
    RpcClient::Options options;
    options.identity = identity(2);
    options.identity.boot_id = {1, boot};
    options.rings = rings;
    client = RpcClient::create(here.env(), at, options);
  }
  Result<std::string> say(std::string_view text) {
    const Bytes body = to_bytes(text);
    CallOptions options;
    options.deadline = here.in(seconds(20));
    Result<Reply> reply = here.run(client->call(kEcho, body, options));
    if (!reply) return fail(reply.error());
    return to_text(reply->body);
  }

  SocketNet here, there;
  std::unique_ptr<RpcServer> server;
  std::unique_ptr<RpcClient> client;
  Address at;
  std::atomic<bool> by_rings{false};
};

TEST_F(RingRpcTest, ProcessesOfOneHostGoOverToRings) {
  connect(true);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = "call " + std::to_string(i);
    ASSERT_EQ(say(text).value_or("no answer"), text);
    ASSERT_TRUE(by_rings);
  }
  // Larger than a ring, both ways.
  const std::string large(3u << 20, 'x');
  EXPECT_EQ(say(large).value_or("no answer"), large);
}

TEST_F(RingRpcTest, OthersUseSockets) {
  connect(false);
  EXPECT_EQ(say("unasked").value_or("no answer"), "unasked");
  EXPECT_FALSE(by_rings);
  here.run(client->stop());
  connect(true, 99);
  EXPECT_EQ(say("another host").value_or("no answer"), "another host");
  EXPECT_FALSE(by_rings);
}

Task<void> yield_until(os::Executor* executor, const std::atomic<bool>* over) {
  while (!*over)
    co_await executor->yield();
}
Task<void> join(base::TaskGroup* tasks) { co_await tasks->join(); }

TEST_F(RingRpcTest, AreLookedAtWhileATaskGoesOnAndOn) {
  connect(true);
  ASSERT_EQ(say("before").value_or("no answer"), "before");
  std::atomic<bool> over{false};
  base::TaskGroup tasks;
  os::Executor* const executor = &there.env().executor;
  executor->post([&] { tasks.start(yield_until(executor, &over)); });
  int answered = 0;
  while (answered < 100 && say("meanwhile").value_or("no answer") == "meanwhile")
    ++answered;
  EXPECT_EQ(answered, 100);
  EXPECT_TRUE(by_rings);
  over = true;
  there.run(join(&tasks));
}

Task<void> end(RpcServer* server) { co_await server->stop(); }

TEST_F(RingRpcTest, ARestartedServerIsFoundAgain) {
  connect(true);
  ASSERT_EQ(say("one").value_or("no answer"), "one");
  there.run(end(server.get()));
  const Result<std::string> lost = say("two");
  ASSERT_FALSE(lost);
  EXPECT_TRUE(lost.error().code() == Code::kConnectionLost ||
              lost.error().code() == Code::kUnreachable)
      << lost.error().message();
  RpcServer::Options options;
  options.identity = identity(3);
  there.run(end(server.get()));
  server = RpcServer::create(there.env(), options);
  by_rings = false;
  there.run(serve());
  here.run(client->stop());
  connect(true);
  EXPECT_EQ(say("three").value_or("no answer"), "three");
  EXPECT_TRUE(by_rings);
}

// Beyond a server's limit clients stay with their sockets; what goes makes room.
class RingQuotaTest : public RingRpcTest {
 protected:
  static constexpr std::uint64_t kBudget = 100u << 20;
  void restart(std::size_t max_rings) {
    there.run(end(server.get()));
    RpcServer::Options options;
    options.limits.max_ring_connections = max_rings;
    options.budget = &budget;
    start(options);
  }
  // Whether a further client is served through rings.
  bool enter() {
    if (client) others.push_back(std::move(client));
    connect(true);
    EXPECT_EQ(say("x").value_or("no answer"), "x");
    return by_rings;
  }
  void leave() {
    here.run(others.back()->stop());
    others.pop_back();
  }
  Task<RpcServer::Counters> look() { co_return server->counters(); }
  RpcServer::Counters counters() { return there.run(look()); }
  std::uint64_t used() { return budget.used(base::MemoryUse::kReceive) / kMemory; }
  void wait_for(std::uint64_t count) {
    const base::TimePoint until = here.in(seconds(20));
    while (used() != count && here.env().now() < until)
      std::this_thread::yield();
    ASSERT_EQ(used(), count);
  }
  ~RingQuotaTest() override {
    while (!others.empty())
      leave();
    here.run(client->stop());
    there.run(end(server.get()));
    server.reset();
    EXPECT_EQ(budget.used(), 0u);
  }

  base::Budget budget{kBudget};
  std::vector<std::unique_ptr<RpcClient>> others;
};

TEST_F(RingQuotaTest, BeyondTheLimitClientsStayWithSockets) {
  restart(3);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(enter()) << i;
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(enter()) << i;
  EXPECT_EQ(used(), 3u);
  EXPECT_EQ(counters().over_limit, 3u);
  EXPECT_EQ(counters().failed_requests, 0u);
  std::swap(others.front(), others.back());
  leave();  // one that has rings
  wait_for(2);
  EXPECT_TRUE(enter());
}

TEST_F(RingQuotaTest, RingsAreChargedAndRefusedWhenTheBudgetIsShort) {
  restart(100);
  EXPECT_TRUE(enter());
  EXPECT_TRUE(enter());
  wait_for(2);
  budget.add(base::MemoryUse::kBuffers, kBudget - 3 * kMemory + 1);
  EXPECT_FALSE(enter());
  EXPECT_EQ(counters().over_limit, 1u);
  budget.give_back(base::MemoryUse::kBuffers, kBudget - 3 * kMemory + 1);
  EXPECT_TRUE(enter());
  wait_for(3);
}

// A listener for rings, and what a process that is no client of ours may do to it.
class RingGuestTest : public ::testing::Test {
 protected:
  RingGuestTest() { net.run(listen()); }
  ~RingGuestTest() override { net.run(drop()); }

  Task<void> listen() {
    listener = *net.env().network.listen(Address(std::string(kRingScheme) + name, 0));
    co_return;
  }
  Task<void> drop() {
    channel.reset();
    listener.reset();
    co_return;
  }
  LocalSocket knock() { return *LocalSocket::connect(name); }
  static Result<void> offer(const LocalSocket& socket, const Offer& offer, int fd) {
    return socket.send(std::as_bytes(std::span(&offer, 1)), std::array{fd});
  }
  // Whether the other side closes; it sends nothing meanwhile but bells.
  static bool is_closed(const LocalSocket& socket) {
    for (int i = 0; i < 10'000; ++i) {
      pollfd waiting{socket.fd(), POLLIN, 0};
      if (::poll(&waiting, 1, 10'000) != 1) return false;
      const auto message = socket.receive();
      if (!message && message.error().code() == Code::kConnectionLost) return true;
    }
    return false;
  }
  Task<void> accept_one() {
    Result<std::unique_ptr<Channel>> accepted = co_await listener->accept();
    EXPECT_TRUE(accepted);
    if (accepted) channel = *std::move(accepted);
  }
  // A guest whose rings were taken.
  void enter() {
    guest = knock();
    ASSERT_TRUE(offer(guest, Offer(), memory.fd()));
    net.run(accept_one());
  }
  RingState& ring(int which) { return reinterpret_cast<RingState*>(memory.data())[which]; }
  Task<Code> receive() {
    Result<FrameHeader> header = co_await channel->receive();
    co_return header ? Code::kOk : header.error().code();
  }

  SocketNet net;
  const std::string name = "test-" + std::to_string(base::secure_random());
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Channel> channel;
  os::OwnedMapping memory =
      *os::OwnedMapping::create("test", kMemory, os::OwnedMapping::PeersMay::kWrite);
  LocalSocket guest;
};

TEST_F(RingGuestTest, OnlySoundRingsAreTaken) {
  const auto small = os::OwnedMapping::create("test", 4096, os::OwnedMapping::PeersMay::kWrite);
  const auto sealed = os::OwnedMapping::create("t", kMemory, os::OwnedMapping::PeersMay::kOnlyRead);
  const int unsealed = ::memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(unsealed, kMemory), 0);
  Offer next_version, other_size, other_magic;
  next_version.version = 2;
  other_size.capacity = 1u << 30;
  other_magic.magic = 1;
  const std::vector<std::pair<Offer, int>> offers = {
      {Offer(), small->fd()},      {Offer(), sealed->fd()},
      {Offer(), unsealed},         {Offer(), 0},
      {next_version, memory.fd()}, {other_size, memory.fd()},
      {other_magic, memory.fd()},
  };
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const LocalSocket socket = knock();
    ASSERT_TRUE(offer(socket, offers[i].first, offers[i].second));
    EXPECT_TRUE(is_closed(socket)) << i;
  }
  ::close(unsealed);
  for (const std::size_t size : {1u, 15u, 17u, 512u}) {
    const LocalSocket socket = knock();
    ASSERT_TRUE(socket.send(std::vector<std::byte>(size)));
    EXPECT_TRUE(is_closed(socket)) << size;
  }
  enter();
  EXPECT_TRUE(channel);
}

TEST_F(RingGuestTest, TheSilentKeepNobodyOut) {
  std::vector<LocalSocket> silent;
  for (int i = 0; i < 200; ++i) {
    auto socket = LocalSocket::connect(name);
    if (socket) silent.push_back(*std::move(socket));
  }
  const base::TimePoint until = net.in(seconds(20));
  while (!channel && net.env().now() < until) {
    auto socket = LocalSocket::connect(name);
    if (!socket) {  // its queue is full for a moment
      std::this_thread::yield();
      continue;
    }
    ASSERT_TRUE(offer(*socket, Offer(), memory.fd()));
    net.run(accept_one());
    guest = *std::move(socket);
  }
  EXPECT_TRUE(channel);
}

TEST_F(RingGuestTest, TheOldestSilentGoesWhenDescriptorsAreFew) {
  std::vector<LocalSocket> silent;
  for (int i = 0; i < 10; ++i)
    silent.push_back(knock());
  guest = knock();
  ASSERT_TRUE(offer(guest, Offer(), memory.fd()));
  net.run(accept_one());  // the silent have been let in before
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(STDERR_FILENO);
  ASSERT_GE(next, 0);
  ::close(next);
  const rlimit few{static_cast<rlim_t>(next) + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const LocalSocket late = knock();  // with the last one
  EXPECT_TRUE(is_closed(silent[0]));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(offer(late, Offer(), memory.fd()));
  net.run(accept_one());
}

TEST_F(RingGuestTest, WhatCantBeEndsTheConnection) {
  enter();
  ring(0).written = std::uint64_t{1} << 40;
  ASSERT_TRUE(guest.send(std::array{std::byte{1}}));
  EXPECT_EQ(net.run(receive()), Code::kConnectionLost);
  EXPECT_TRUE(is_closed(guest));
}

TEST_F(RingGuestTest, GarbageEndsTheConnection) {
  enter();
  const base::ConstBuffer garbage = base::as_bytes("GET / HTTP/1.1 and more than a header of it");
  std::copy(garbage.begin(), garbage.end(), memory.data() + 4096);
  ring(0).written = garbage.size();
  ASSERT_TRUE(guest.send(std::array{std::byte{1}}));
  EXPECT_EQ(net.run(receive()), Code::kProtocolError);
}

TEST_F(RingGuestTest, WhatWasWrittenBeforeTheEndArrives) {
  enter();
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(kEcho);
  header.request_id = 1;
  const FrameBytes frame = encode(header);
  std::copy(frame.begin(), frame.end(), memory.data() + 4096);
  ring(0).written = frame.size();
  guest = LocalSocket();
  EXPECT_EQ(net.run(receive()), Code::kOk);
  EXPECT_EQ(net.run(receive()), Code::kConnectionLost);
}

Task<Code> send_much(Channel* channel) {
  channel->set_stall_timeout(milliseconds(20));
  const Bytes bytes = pattern(kMaxDataPayload);
  const base::ConstBuffer part(bytes);
  BufferSource source({&part, 1});
  FrameHeader header;
  header.request_id = 1;
  header.flags = kData;
  const Result<void> sent = co_await channel->send_from(header, source, bytes.size());
  co_return sent ? Code::kOk : sent.error().code();
}

TEST_F(RingGuestTest, AGuestThatDoesNotReadIsLeft) {
  enter();
  EXPECT_EQ(net.run(send_much(channel.get())), Code::kDeadlineExceeded);
  EXPECT_TRUE(is_closed(guest));
}

}  // namespace
}  // namespace mooncake::net
