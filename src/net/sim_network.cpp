// Hosts, listeners and connecting of the simulated network; what happens on a connection is in
// net/sim_wire.h.
#include "net/sim_network.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "net/sim_wire.h"

namespace mooncake::net {
namespace {

constexpr std::size_t kBacklog = 1024;
constexpr std::uint16_t kFirstFreePort = 20000;
// How often a connection attempt goes out again while a partition swallows it.
constexpr base::Duration kConnectRetry = std::chrono::milliseconds(100);

struct ListenerState {
  ListenerState(std::shared_ptr<SimPeer> host_, Address address_)
      : host(std::move(host_)), address(std::move(address_)) {}
  const std::shared_ptr<SimPeer> host;
  const Address address;
  std::deque<std::unique_ptr<Channel>> waiting;
  os::Completion<bool>* acceptor = nullptr;
  bool closed = false;

  void wake() {
    if (acceptor) std::exchange(acceptor, nullptr)->set(true);
  }
  void close() {
    closed = true;
    waiting.clear();
    wake();
  }
};

struct World {
  explicit World(std::shared_ptr<SimContext> context_) : context(std::move(context_)) {}
  std::shared_ptr<SimContext> context;
  std::map<Address, std::shared_ptr<ListenerState>,
           decltype([](const Address& a, const Address& b) {
             return std::tie(a.host, a.port) < std::tie(b.host, b.port);
           })>
      listeners;
  std::vector<std::weak_ptr<SimConnection>> connections;
  std::size_t prune_at = 64;

  void remember(const std::shared_ptr<SimConnection>& connection) {
    if (connections.size() >= prune_at) {
      std::erase_if(connections, [](const auto& c) { return c.expired(); });
      prune_at = std::max<std::size_t>(64, 2 * connections.size());
    }
    connections.push_back(connection);
  }
};

Task<Result<std::unique_ptr<Channel>>> accept_on(std::shared_ptr<ListenerState> listener) {
  while (!listener->closed && listener->waiting.empty()) {
    assert(!listener->acceptor);
    os::Completion<bool> arrival(listener->host->executor);
    listener->acceptor = &arrival;
    co_await arrival;
  }
  if (listener->closed) co_return fail(Code::kCancelled, "listener closed");
  std::unique_ptr<Channel> channel = std::move(listener->waiting.front());
  listener->waiting.pop_front();
  co_return channel;
}

class SimListener final : public Listener {
 public:
  SimListener(std::shared_ptr<World> world, std::shared_ptr<ListenerState> state)
      : world_(std::move(world)), state_(std::move(state)) {}
  ~SimListener() override { close(); }

  Task<Result<std::unique_ptr<Channel>>> accept() override { return accept_on(state_); }
  const Address& address() const override { return state_->address; }
  void close() override {
    if (!state_->closed) world_->listeners.erase(state_->address);
    state_->close();
  }

 private:
  const std::shared_ptr<World> world_;
  const std::shared_ptr<ListenerState> state_;
};

// The server's end goes into the listener's queue at once, like in a kernel: its process may be
// frozen.
Result<std::unique_ptr<Channel>> open_connection(World& world, std::shared_ptr<SimPeer> from,
                                                 const Address& to) {
  const auto found = world.listeners.find(to);
  if (found == world.listeners.end()) {
    return fail(Code::kUnreachable, to_string(to) + ": connection refused");
  }
  const std::shared_ptr<ListenerState> listener = found->second;
  if (listener->waiting.size() >= kBacklog) {
    return fail(Code::kUnreachable, to_string(to) + ": too many connections wait");
  }
  auto connection = std::make_shared<SimConnection>(world.context, std::move(from), listener->host);
  world.remember(connection);
  listener->waiting.push_back(connection->channel(1));
  listener->wake();
  return connection->channel(0);
}

Task<Result<std::unique_ptr<Channel>>> connect_from(std::shared_ptr<World> world,
                                                    std::shared_ptr<SimPeer> from, Address to,
                                                    base::TimePoint deadline) {
  os::SimHost& executor = from->executor;
  for (;;) {
    const bool vanishes = world->context->partitioned(from->name, to.host);
    const base::Duration wait = vanishes ? kConnectRetry : world->context->latency();
    co_await executor.sleep_until(std::min(deadline, executor.now() + wait));
    if (!from->alive || !world->context->faults) {
      co_return fail(Code::kUnreachable, to_string(to) + ": this host is dead");
    }
    if (executor.now() >= deadline) {
      co_return fail(Code::kDeadlineExceeded, "connect " + to_string(to));
    }
    if (vanishes) continue;
    Result<std::unique_ptr<Channel>> channel = open_connection(*world, from, to);
    co_await executor.sleep_for(world->context->latency());
    co_return channel;
  }
}

class HostNetwork final : public Network {
 public:
  HostNetwork(std::shared_ptr<World> world, std::shared_ptr<SimPeer> host)
      : world_(std::move(world)), host_(std::move(host)) {}

  Task<Result<std::unique_ptr<Channel>>> connect(Address to, base::TimePoint deadline) override {
    return connect_from(world_, host_, std::move(to), deadline);
  }
  Result<std::unique_ptr<Listener>> listen(const Address& at) override;
  const std::shared_ptr<SimPeer>& peer() const { return host_; }

 private:
  const std::shared_ptr<World> world_;
  const std::shared_ptr<SimPeer> host_;
  std::uint16_t next_port_ = kFirstFreePort;
};

Result<std::unique_ptr<Listener>> HostNetwork::listen(const Address& at) {
  if (!host_->alive) return fail(Code::kUnreachable, "this host is dead");
  if (is_ring(at)) return fail(Code::kNotSupported, "no rings are simulated");
  Address address(host_->name, at.port);
  while (address.port == 0) {
    const Address next(host_->name, next_port_++);
    if (!world_->listeners.contains(next)) address = next;
  }
  auto state = std::make_shared<ListenerState>(host_, address);
  if (!world_->listeners.emplace(address, state).second) {
    return fail(Code::kAddressInUse, to_string(address));
  }
  return std::make_unique<SimListener>(world_, std::move(state));
}

}  // namespace

struct SimWorld::State {
  explicit State(std::shared_ptr<SimContext> context)
      : world(std::make_shared<World>(std::move(context))) {}
  std::shared_ptr<World> world;
  std::vector<std::unique_ptr<HostNetwork>> hosts;  // all lives, in order

  SimContext& context() { return *world->context; }
  HostNetwork* alive(const std::string& name) {
    for (const auto& host : hosts) {
      if (host->peer()->alive && host->peer()->name == name) return host.get();
    }
    return nullptr;
  }
  void kill(SimPeer& host);
};

void SimWorld::State::kill(SimPeer& host) {
  for (auto it = world->listeners.begin(); it != world->listeners.end();) {
    const std::shared_ptr<ListenerState> listener = it->second;
    if (listener->host.get() == &host) {
      it = world->listeners.erase(it);
      listener->close();
    } else {
      ++it;
    }
  }
  for (const auto& weak : world->connections) {
    const std::shared_ptr<SimConnection> connection = weak.lock();
    if (!connection) continue;
    for (int side : {0, 1}) {
      if (connection->is_at(side, host)) {
        connection->close(side, Error(Code::kConnectionLost, host.name + " was killed"));
      }
    }
  }
  host.alive = false;
}

SimWorld::SimWorld(os::SimExecutor& /*executor*/, base::Random& random)
    : state_(std::make_unique<State>(std::make_shared<SimContext>(random, &faults))) {}

SimWorld::~SimWorld() {
  state_->context().faults = nullptr;  // nothing flies any more
  for (const auto& host : state_->hosts) {
    if (host->peer()->alive) state_->kill(*host->peer());
  }
}

Network& SimWorld::host(const std::string& name, os::SimHost& executor) {
  if (HostNetwork* host = state_->alive(name)) {
    assert(&host->peer()->executor == &executor && "kill() it first");
    return *host;
  }
  state_->hosts.push_back(
      std::make_unique<HostNetwork>(state_->world, std::make_shared<SimPeer>(name, executor)));
  return *state_->hosts.back();
}

void SimWorld::kill(const std::string& name) {
  if (HostNetwork* host = state_->alive(name)) state_->kill(*host->peer());
}

void SimWorld::partition(const std::string& a, const std::string& b) {
  state_->context().partitions.insert(std::minmax(a, b));
}

void SimWorld::heal() {
  state_->context().partitions.clear();
  for (const auto& weak : state_->world->connections) {
    if (const auto connection = weak.lock()) connection->heal();
  }
}

SimWorld::Counters SimWorld::counters() const { return state_->world->context->counters; }

}  // namespace mooncake::net
