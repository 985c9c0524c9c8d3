// A simulated network with faults, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/random.h"
#include "net/network.h"
#include "os/sim_executor.h"

namespace mooncake::net {

// What the simulated wire may do. Probabilities are per message. A stream loses nothing by itself:
// a lost message is one whose connection broke, and what had been sent may still be acted upon,
// late.
struct SimFaults {
  base::Duration latency_min = std::chrono::microseconds(20);
  base::Duration latency_max = std::chrono::microseconds(200);
  double lose = 0;  // the connection breaks before the message arrives
  double cut = 0;   // the connection breaks for its sender; the receiver still gets the message,
                    // up to `late` later, and can't answer
  double duplicate = 0;  // a request without data arrives once more, up to `late` later, under
                         // another id whose reply is dropped
  double stall = 0;      // this direction of the connection stands still for up to `late`
  base::Duration late = std::chrono::milliseconds(500);
  std::size_t copy_step = 512;  // payload bytes copied in one turn of the executor
};

// All hosts of one simulated cluster.
class SimWorld {
 public:
  // Deliveries run on the receiving host's executor.
  SimWorld(os::SimExecutor& executor, base::Random& random);
  ~SimWorld();

  SimFaults faults;

  // The network as the host `name` sees it; addresses are "name:port". Lives as long as the world.
  // A host that is frozen receives nothing until it thaws; what it sent before still arrives.
  Network& host(const std::string& name, os::SimHost& executor);

  // kill -9: all its connections break (peers see it after a latency), its listeners are gone. A
  // new host() of the same name is its next life.
  void kill(const std::string& name);
  // Frames between the two vanish until healed; connections stay, and the end of one becomes known
  // after healing. Connecting waits for it, or for its deadline.
  void partition(const std::string& a, const std::string& b);
  void heal();

  struct Counters {
    std::uint64_t messages, lost, cut, duplicated, stalled;
  };
  Counters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mooncake::net
