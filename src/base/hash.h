// Hashes: which key, which bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace mooncake::base {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
};

// xxh3. Seeded, so that a peer can't choose keys that collide in our tables.
Hash128 hash128(std::string_view bytes, std::uint64_t seed);
std::uint64_t hash64(std::string_view bytes, std::uint64_t seed);

// CRC-32C (Castagnoli), as in iSCSI. `crc` chains: crc32c(b, crc32c(a)) == crc32c(ab).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

namespace detail {
// The same by table, for processors without the instruction and for the test that compares both.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc);
}  // namespace detail

}  // namespace mooncake::base
