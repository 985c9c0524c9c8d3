// Describe: keys of a peer's regions, asked for by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffers.h"
#include "memory/registry.h"
#include "mooncake/result.h"
#include "net/rpc.h"

namespace mooncake::transfer {

struct AskedRange {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  bool guarded = false;
};
struct DescribedRegion {
  std::uint64_t base = 0;
  std::uint64_t length = 0;  // 0: no region covers the range
  memory::RegionKey key{};
  memory::Pass pass{};
  memory::SharedPlace place;  // of `base`
  std::uint64_t words = 0;  // of guarded memory: the pool where its words are; 0 = can't be mapped
};

inline constexpr std::size_t kMaxDescribed = 4096;  // ranges of one question

// All of one kind: plain or guarded.
net::Bytes encode_describe(std::span<const AskedRange> ranges);
// For each range one region; kProtocolError for anything else.
Result<std::vector<DescribedRegion>> decode_described(base::ConstBuffer body, std::size_t asked);

// Where the peer's first buffer begins; 0 when it has none.
Result<std::uint64_t> decode_first_address(base::ConstBuffer body);

// The owner's side. The key of guarded memory is not told: it comes from the store's Master.
Result<net::Bytes> answer_describe(const memory::Registry& registry, base::ConstBuffer body);

}  // namespace mooncake::transfer
