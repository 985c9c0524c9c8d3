// How a segment is chosen for a replica that nobody has wishes for.
#pragma once

#include <cstdint>

namespace mooncake::store::master {

enum class AllocationStrategy : std::uint8_t {
  kRandom,          // of two segments drawn by lot the emptier one
  kFreeRatioFirst,  // of six neighbours, drawn by lot, the one with the largest free share
  kLocalFirst,      // the writer's own, then its host's, then kRandom
};

}  // namespace mooncake::store::master
