// Which eviction policy the Master runs; each is a header here.
#pragma once

#include <cstdint>
#include <string_view>

namespace mooncake::store::master {

enum class EvictionKind : std::uint8_t {
  kLru,     // the least recently used first
  kFifo,    // the first published first
  kS3Fifo,  // what nobody reads leaves a small queue early, the rest has a second chance
  kSieve,   // first published first, but passing over what was read since the last time
};

// As in the setting eviction_policy.
constexpr std::string_view name_of(EvictionKind kind) {
  switch (kind) {
    case EvictionKind::kLru:
      return "lru";
    case EvictionKind::kFifo:
      return "fifo";
    case EvictionKind::kS3Fifo:
      return "s3fifo";
    case EvictionKind::kSieve:
      return "sieve";
  }
  return "";
}
inline constexpr EvictionKind kEvictionKinds[] = {EvictionKind::kLru, EvictionKind::kFifo,
                                                  EvictionKind::kS3Fifo, EvictionKind::kSieve};

}  // namespace mooncake::store::master
