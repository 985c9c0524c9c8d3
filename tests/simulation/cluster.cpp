#include "cluster.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/hash.h"

namespace mooncake::simulation {

namespace {

using base::Task;
using base::TimePoint;

constexpr std::uint16_t kMasterPort = 50051;
constexpr std::uint16_t kEnginePort = 12300;
constexpr std::chrono::seconds kMountTimeout{30};

Task<Result<std::unique_ptr<net::Channel>>> dial_master(os::Env env, TimePoint deadline) {
  net::Address master("master", kMasterPort);
  co_return co_await env.network.connect(master, deadline);
}

Task<bool> end_life(Life* life) {
  if (life->client) co_await life->client->stop(life->host.now() + std::chrono::milliseconds(100));
  life->client.reset();
  if (life->engine) co_await life->engine->stop();
  life->engine.reset();
  if (life->master) co_await life->master->stop();
  life->master.reset();
  co_return true;
}

struct StartArguments {
  os::Env env;
  net::Identity identity;
  std::string name;
  std::uint64_t segment_size;
};

Task<bool> start_client_life(Life* life, const StartArguments* with) {
  transfer::EngineOptions engine_options;
  engine_options.identity = with->identity;
  engine_options.listen = net::Address(with->name, kEnginePort);
  auto engine = co_await transfer::Engine::start(with->env, std::move(engine_options));
  if (!engine) co_return false;
  life->engine = std::move(*engine);

  store::ClientOptions options;
  const os::Env env = with->env;
  options.connect_to_master = [env](TimePoint deadline) { return dial_master(env, deadline); };
  options.master_name = "master";
  options.identity = life->engine->identity();
  options.identity.role = "client";
  options.host = with->name;
  options.segment_size = with->segment_size;
  const TimePoint deadline = env.now() + kMountTimeout;
  auto client = co_await store::Client::start(env, *life->engine, std::move(options), deadline);
  if (!client) co_return false;
  life->client = std::move(*client);
  co_return true;
}

std::string client_name(std::size_t index) { return fmt::format("client{}", index); }

}  // namespace

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      world_(options.seed),
      random_(options.seed * 2 + 1),
      network_(world_, random_),
      clients_(options.clients) {}

Cluster::~Cluster() { stop(); }

std::unique_ptr<Life> Cluster::new_life() { return std::make_unique<Life>(world_, random_.next()); }

os::Env Cluster::env(Life& life, const std::string& name, os::Disk& disk) {
  return os::Env{life.host, life.random, network_.host(name, life.host), disk};
}

net::Identity Cluster::identity(const std::string& name, const std::string& role, Life& life) {
  net::Identity identity;
  identity.role = role;
  identity.name = name;
  identity.boot_id = base::Uuid{1, base::hash64(name, 0)};  // every host is a machine of its own
  identity.incarnation = life.random.incarnation();
  identity.cluster_secret = options_.cluster_secret;
  return identity;
}

void Cluster::start_master() {
  if (master_) return;
  auto life = new_life();
  store::master::ServerOptions server;
  server.identity = identity("master", "master", *life);
  server.core = options_.core;
  server.epoch_file = "/state/epoch";
  server.on_decision = [this](const store::master::Decision& decision) {
    history_.decided(decision, now());
  };
  auto master = store::master::MasterServer::create(env(*life, "master", master_disk_), server);
  if (!master) throw std::runtime_error("master: " + master.error().message());
  life->master = std::move(*master);
  Result<net::Address> at = life->master->listen(net::Address("master", kMasterPort));
  if (!at) throw std::runtime_error("master listens: " + at.error().message());
  master_ = std::move(life);
}

void Cluster::start_client(std::size_t index) {
  if (clients_[index]) return;
  auto life = new_life();
  const std::string name = client_name(index);
  StartArguments with{env(*life, name, no_disk_), identity(name, "engine", *life), name,
                      options_.segment_size};
  const bool started = world_.run(start_client_life(life.get(), &with));
  if (started) {
    clients_[index] = std::move(life);
  } else {
    mourn(std::move(life), name);
  }
}

void Cluster::mourn(std::unique_ptr<Life> life, const std::string& name) {
  life->dead = true;
  life->host.freeze();
  network_.kill(name);
  dead_.push_back(std::move(life));
}

void Cluster::kill_master() {
  if (!master_) return;
  history_.master_died(now());
  mourn(std::move(master_), "master");
}

void Cluster::kill_client(std::size_t index) {
  if (!clients_[index]) return;
  const TimePoint noticed_by = now() + options_.core.client_ttl + std::chrono::seconds(5);
  history_.owner_died(now(), noticed_by);
  history_.owner_troubled(client_name(index), noticed_by);
  mourn(std::move(clients_[index]), client_name(index));
}

void Cluster::close_client(std::size_t index) {
  world_.run(end_life(clients_[index].get()));
  clients_[index]->dead = true;
  buried_.push_back(std::move(clients_[index]));
}

void Cluster::bury() {
  std::vector<std::unique_ptr<Life>> dead;
  dead.swap(dead_);
  for (auto& life : dead) {
    life->host.thaw();
    world_.run(end_life(life.get()));
    buried_.push_back(std::move(life));
  }
}

void Cluster::stop() {
  network_.heal();
  network_.faults = net::SimFaults();
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (clients_[i]) {
      clients_[i]->host.thaw();
      world_.run(end_life(clients_[i].get()));
      clients_[i]->dead = true;
      buried_.push_back(std::move(clients_[i]));
    }
  }
  if (master_) {
    master_->host.thaw();
    world_.run(end_life(master_.get()));
    buried_.push_back(std::move(master_));
  }
  bury();
}

}  // namespace mooncake::simulation
