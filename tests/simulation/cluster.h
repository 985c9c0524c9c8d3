// Cluster: the real Master, engines and clients, each on a simulated host, on one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "history.h"
#include "net/sim_network.h"
#include "os/disk.h"
#include "os/sim_executor.h"
#include "store/client/client.h"
#include "store/master/server.h"
#include "transfer/engine.h"

namespace mooncake::simulation {

struct ClusterOptions {
  std::uint64_t seed = 1;
  std::size_t clients = 3;
  std::uint64_t segment_size = 1u << 20;
  store::master::CoreOptions core;
  std::string cluster_secret = "simulated secret";
};

// One life of one process: what is lost when it is killed.
struct Life {
  explicit Life(os::SimExecutor& world, std::uint64_t seed) : host(world), random(seed) {}
  os::SimHost host;
  base::Random random;
  std::unique_ptr<transfer::Engine> engine;
  std::unique_ptr<store::Client> client;
  std::unique_ptr<store::master::MasterServer> master;
  bool dead = false;
  std::uint64_t freezes = 0;  // times that it was stopped
};

// All calls from outside the executor, unless said otherwise.
class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  os::SimExecutor& world() { return world_; }
  net::SimWorld& network() { return network_; }
  base::Random& random() { return random_; }
  History& history() { return history_; }
  const ClusterOptions& options() const { return options_; }
  base::TimePoint now() const { return world_.now(); }

  // From anywhere. The client's present life, null while it has none.
  Life* client(std::size_t index) { return clients_[index].get(); }
  const store::master::Core& core() const { return master_->master->core(); }
  bool master_up() const { return master_ != nullptr; }

  // Starts what has no life. A client that can't mount in time stays without one.
  void start_master();
  void start_client(std::size_t index);

  // Faults. From inside the executor too, except the kills' clean-up, which bury() does.
  void kill_master();
  void kill_client(std::size_t index);
  // Unmounts and ends, in peace.
  void close_client(std::size_t index);
  os::SimHost& master_host() { return master_->host; }
  Life* master_life() { return master_.get(); }

  // Ends dead lives' tasks, quietly. Call now and then from outside.
  void bury();
  // Everything ends; the world is empty afterwards.
  void stop();

 private:
  std::unique_ptr<Life> new_life();
  os::Env env(Life& life, const std::string& name, os::Disk& disk);
  net::Identity identity(const std::string& name, const std::string& role, Life& life);
  void mourn(std::unique_ptr<Life> life, const std::string& name);

  ClusterOptions options_;
  os::SimExecutor world_;
  base::Random random_;
  net::SimWorld network_;
  History history_;
  os::FakeDisk master_disk_;
  os::FakeDisk no_disk_;
  std::unique_ptr<Life> master_;
  std::vector<std::unique_ptr<Life>> clients_;
  std::vector<std::unique_ptr<Life>> dead_;
  std::vector<std::unique_ptr<Life>> buried_;  // hosts stay until the world ends
};

}  // namespace mooncake::simulation
