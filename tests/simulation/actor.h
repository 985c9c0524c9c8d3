// Actor: one caller of one client's life.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "cluster.h"

namespace mooncake::simulation {

struct Shared {
  Cluster* cluster = nullptr;
  std::size_t keys = 0;
  std::uint64_t operations_left = 0;
  std::uint64_t operations_done = 0;
  bool quiet = false;  // no new operations
  std::vector<std::string> violations;
};

class Actor {
 public:
  Actor(Shared& shared, Life& life, std::uint64_t seed)
      : shared_(shared), life_(life), random_(seed) {}

  // Runs until there is nothing left to do, or its life has ended.
  base::Task<void> run();

  // One read that must end in a hit or a plain miss; for the end of a run.
  base::Task<void> read(std::string key);

 private:
  base::Task<void> put(bool upsert);
  base::Task<void> get();
  base::Task<void> exist();
  base::Task<void> locate();
  base::Task<void> remove();
  base::Task<void> remove_matching();

  std::string some_key();
  base::TimePoint some_deadline();
  void returned(const char* what, base::TimePoint deadline, std::uint64_t freezes);
  std::size_t some_size();
  ReplicateConfig some_config();
  // Keeps a buffer of a call that has returned, to see whether it changes.
  void keep(std::vector<std::byte> buffer);
  void forget_oldest();

  Shared& shared_;
  Life& life_;
  base::Random random_;
  struct Kept {
    std::vector<std::byte> live;  // what a late write would hit
    std::vector<std::byte> copy;
  };
  std::deque<Kept> kept_;
};

}  // namespace mooncake::simulation
