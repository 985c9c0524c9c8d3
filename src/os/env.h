// Env: everything that logic may ask of the world. A constructor parameter of every component.
#pragma once

#include "base/random.h"
#include "os/disk.h"
#include "os/executor.h"

namespace mooncake::net {
class Network;  // net/network.h; named here so that one struct carries the world
}

namespace mooncake::os {

// References to what outlives every component that is given them. Copy freely.
struct Env {
  Executor& executor;
  base::Random& random;  // executor thread only
  net::Network& network;
  Disk& disk;

  TimePoint now() const { return executor.now(); }
};

}  // namespace mooncake::os
