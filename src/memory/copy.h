// Copies between memory of this process and memory that it has mapped of others.
#pragma once

#include <cstddef>

namespace mooncake::memory {

// memcpy, but past the caches where the block is so large that it would only push other data out of
// them (kStreamFrom bytes and more): about 1.7 times as fast there. The ranges don't overlap.
// Streamed stores are in no order with others until a store fence; PeerGate::Slots::leave() has
// one.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t size);

// Below it the block is likely to be read soon from a cache. Measured: bench/micro/copy_bench.cpp.
inline constexpr std::size_t kStreamFrom = 512u << 10;

}  // namespace mooncake::memory
