// A server with limits on the simulated network with a fake clock, honest clients, and connections
// in the hands of the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "net/net_testing.h"

namespace mooncake::net::testing {

using std::chrono::minutes;

inline constexpr std::size_t kMiB = 1u << 20;

// A process of the simulated cluster, which may be stopped.
struct Node {
  Node(os::SimExecutor& executor, SimWorld& world, const std::string& name)
      : host(executor), network(world.host(name, host)) {}
  os::SimHost host;
  base::Random random{7};
  os::FakeDisk disk;
  Network& network;
  os::Env env() { return {host, random, network, disk}; }
};

class RpcLimitsTest : public ::testing::Test {
 protected:
  virtual os::Env server_env() { return home.env(); }
  void serve(RpcLimits limits = {}) {
    RpcServer::Options options;
    options.identity = identity(100);
    options.limits = limits;
    options.budget = &budget;
    max_bytes = limits.max_bytes;
    server = RpcServer::create(server_env(), options);
    server->handle(kEcho, echo);
    server->handle(kPut, take);
    server->handle(kGet, [this](ServerCall& call) { return give(call); });
    server->handle(kWait, [this](ServerCall& call) { return wait(call); });
    at = *server->listen(Address("server", 1));
  }
  // Body: size of the reply.
  Task<Result<Bytes>> give(ServerCall& call) {
    EXPECT_LE(server->counters().held_bytes, max_bytes);
    EXPECT_GE(budget.used(base::MemoryUse::kReceive), call.body().size());
    co_return pattern(std::stoull(std::string(base::as_text(call.body()))));
  }
  // The same, when the test opens the doors.
  Task<Result<Bytes>> wait(ServerCall& call) {
    doors.push_back(std::make_unique<os::Completion<bool>>(home.host));
    os::Completion<bool>& door = *doors.back();
    co_await door;
    co_return co_await give(call);
  }
  static Task<Result<Bytes>> take(ServerCall& call) {
    Bytes bytes;
    VectorSink sink(bytes);
    MC_CO_CHECK(co_await call.receive_data(sink, 1));
    co_return bytes;
  }

  // A connection in the hands of the test, which has greeted or not.
  std::unique_ptr<Channel> connect() {
    return *executor.run(away.network.connect(at, executor.now() + seconds(1)));
  }
  std::unique_ptr<Channel> greeted(std::uint64_t incarnation = 9) {
    std::unique_ptr<Channel> channel = connect();
    const Identity self = identity(incarnation);
    EXPECT_TRUE(executor.run(greet(away.env(), *channel, self, "x", executor.now() + seconds(1))));
    return channel;
  }
  void ask(Channel& channel, Method method, base::ConstBuffer body, std::uint16_t flags = 0) {
    FrameHeader header;
    header.method = static_cast<std::uint16_t>(method);
    header.request_id = ++last_id;
    header.flags = flags;
    header.deadline_us = 600'000'000;
    EXPECT_TRUE(channel.send(header, {&body, 1}));
  }
  void ask_for(Channel& channel, Method method, int count, std::size_t size) {
    for (int i = 0; i < count; ++i)
      ask(channel, method, to_bytes(std::to_string(size)));
    executor.run_for(milliseconds(100));
  }

  void send_data(Channel& channel, std::uint32_t id) {
    FrameHeader header;
    header.request_id = id;
    header.flags = kData;
    const base::ConstBuffer byte = base::as_bytes("x");
    EXPECT_TRUE(channel.send(header, {&byte, 1}));
  }

  RpcClient& client(RpcClient::Options options = {}) {
    options.identity = identity(200 + clients.size());
    clients.push_back(RpcClient::create(away.env(), at, std::move(options)));
    return *clients.back();
  }
  Task<Result<Reply>> call(RpcClient* from, Method method, Bytes body, base::Duration within) {
    CallOptions options;
    options.deadline = executor.now() + within;
    co_return co_await from->call(method, body, options);
  }
  Code code_of(RpcClient& from, std::size_t size = 5, Method method = kEcho) {
    const Result<Reply> reply =
        executor.run(call(&from, method, Bytes(size, std::byte{'1'}), minutes(9)));
    return reply ? Code::kOk : reply.error().code();
  }
  void open_doors() {
    for (auto& door : doors)
      door->set(true);
  }
  RpcServer::Counters counters() { return server->counters(); }

  void TearDown() override {
    open_doors();
    executor.run(stop_all());
    executor.run_ready();
    server.reset();
    EXPECT_EQ(budget.used(base::MemoryUse::kReceive), 0u);
  }
  Task<void> stop_all() {
    for (auto& one : clients)
      co_await one->stop();
    co_await server->stop();
  }

  os::SimExecutor executor{1};
  base::Random random{7};
  SimWorld world{executor, random};
  Node home{executor, world, "server"}, away{executor, world, "client"};
  base::Budget budget{64 * kMiB};
  std::vector<std::unique_ptr<os::Completion<bool>>> doors;  // of the requests that wait
  Address at;
  std::size_t max_bytes = 0;
  std::unique_ptr<RpcServer> server;
  std::vector<std::unique_ptr<RpcClient>> clients;
  std::uint32_t last_id = 0;
};

}  // namespace mooncake::net::testing
