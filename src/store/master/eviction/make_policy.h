// make_policy(): a policy by its kind.
#pragma once

#include <cstdint>
#include <memory>

#include "store/master/eviction/fifo.h"
#include "store/master/eviction/kind.h"
#include "store/master/eviction/lru.h"
#include "store/master/eviction/s3fifo.h"
#include "store/master/eviction/sieve.h"

namespace mooncake::store::master {

template <typename Store>
std::unique_ptr<EvictionPolicy> make_policy(EvictionKind kind, Store store, std::uint64_t hold_ns) {
  switch (kind) {
    case EvictionKind::kLru:
      break;
    case EvictionKind::kFifo:
      return std::make_unique<Fifo<Store>>(store);
    case EvictionKind::kS3Fifo:
      return std::make_unique<S3Fifo<Store>>(store);
    case EvictionKind::kSieve:
      return std::make_unique<Sieve<Store>>(store);
  }
  return std::make_unique<Lru<Store>>(store, hold_ns);
}

}  // namespace mooncake::store::master
