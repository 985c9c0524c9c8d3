// Copies between memory of this process and memory that it has mapped of others.
#pragma once

#include <cstddef>

namespace mooncake::memory {

// memcpy, but past the caches for blocks of kStreamFrom bytes and more, which would only push other
// data out of them. The ranges don't overlap. Streamed stores are in no order with others until
// store_fence(), which PeerGate::Slots::leave() has.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t size);
void store_fence();

// As large as a first-level cache. In memory that no cache holds, streamed copies of 16 KiB and of
// 16 MiB are 1.7 times as fast as others (bench/compare/bare_loops.cpp); what is smaller is likely
// to be read soon.
inline constexpr std::size_t kStreamFrom = 32u << 10;

}  // namespace mooncake::memory
