// In-process channels: perfect ones for embedded mode, and a simulated network with faults for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/random.h"
#include "net/network.h"
#include "os/executor.h"

namespace mooncake::net {

// Two ends of one connection between components on one executor. Payloads are copied once, in steps.
std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>> make_channel_pair(
    os::Executor& executor);

// What the simulated wire may do. Probabilities are per frame.
struct SimFaults {
  base::Duration latency_min = std::chrono::microseconds(20);
  base::Duration latency_max = std::chrono::microseconds(200);
  double lose = 0;        // the frame never arrives (a message, not a stream: later ones do)
  double duplicate = 0;   // the frame arrives twice
  double delay = 0;       // the frame arrives up to `late` later, after younger ones
  base::Duration late = std::chrono::milliseconds(500);
  double cut = 0;         // the connection breaks in the middle of the frame
  std::size_t copy_step = 512;  // payload bytes copied in one turn of the executor
};

// All hosts of one simulated cluster. Data frames are never lost or reordered on their own within a
// message (a stream could not do that), only with the connection.
class SimWorld {
 public:
  SimWorld(os::Executor& executor, base::Random& random);
  ~SimWorld();

  SimFaults faults;

  // The network as the host `name` sees it; addresses are "name:port". Lives as long as the world.
  Network& host(const std::string& name);

  // SIGSTOP: nothing that this host sent or should receive moves until resume().
  void stop(const std::string& name);
  void resume(const std::string& name);
  // kill -9: all its connections break (peers see it after a latency), its listeners are gone.
  void kill(const std::string& name);
  // Frames between the two vanish until healed; connections stay.
  void partition(const std::string& a, const std::string& b);
  void heal();

  struct Counters {
    std::uint64_t frames, lost, duplicated, delayed, cut;
  };
  Counters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mooncake::net
