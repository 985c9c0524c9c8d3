// Which eviction policy the Master runs; each is a header here.
#pragma once

#include <cstdint>

namespace mooncake::store::master {

enum class EvictionKind : std::uint8_t {
  kLru,     // the least recently used first
  kFifo,    // the first published first
  kS3Fifo,  // what nobody reads leaves a small queue early, the rest has a second chance
  kSieve,   // first published first, but passing over what was read since the last time
};

}  // namespace mooncake::store::master
