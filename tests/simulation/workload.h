// Workload: clients that put, get, ask and remove at random, faults that strike in between, and the
// checks that hold after every step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster.h"

namespace mooncake::simulation {

struct WorkloadOptions {
  std::uint64_t seed = 1;
  std::uint64_t operations = 2000;  // calls of clients
  std::size_t actors = 2;           // concurrent callers per client
  std::size_t keys = 60;
  std::size_t faults = 2;  // at least one of them strikes
};

struct Outcome {
  std::vector<std::string> violations;
  std::vector<std::string> faults;  // what struck, and when
  std::uint64_t operations = 0;
  std::uint64_t hits = 0, misses = 0, stored = 0, removals = 0, evictions = 0, losses = 0,
                replacements = 0;
  std::uint64_t places = 0;                        // that were told, and are held against losses
  std::uint64_t soft_pinned = 0, hard_pinned = 0;  // objects at once, at most
  std::uint64_t disowned = 0;                      // clients whose namesake was let in
  double simulated_seconds = 0;
  net::SimWorld::Counters wire{};
};

// Runs one seed to its end. Everything is drawn from the seed: knobs too.
Outcome run_seed(const WorkloadOptions& options);

}  // namespace mooncake::simulation
