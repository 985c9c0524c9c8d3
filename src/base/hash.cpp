#include "base/hash.h"

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace mooncake::base {

namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, bits reversed

// Row k: the CRC of a byte that is followed by k zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t row = 1; row < tables.size(); ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[row - 1][byte];
      tables[row][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint64_t load64(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes,
                                                             std::uint32_t crc) {
  std::uint64_t state = ~crc;
  while (bytes.size() >= 8) {
    state = _mm_crc32_u64(state, load64(bytes.data()));
    bytes = bytes.subspan(8);
  }
  auto narrow = static_cast<std::uint32_t>(state);
  for (const std::byte b : bytes)
    narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(b));
  return ~narrow;
}
#endif

}  // namespace

Hash128 hash128(std::string_view bytes, std::uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

std::uint64_t hash64(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint32_t detail::crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  std::uint32_t state = ~crc;
  while (bytes.size() >= 8) {
    const std::uint64_t word = load64(bytes.data()) ^ state;
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 8; ++i)
      next ^= kTables[7 - i][word >> (8 * i) & 0xff];
    state = next;
    bytes = bytes.subspan(8);
  }
  for (const std::byte b : bytes) {
    state = state >> 8 ^ kTables[0][(state ^ std::to_integer<std::uint32_t>(b)) & 0xff];
  }
  return ~state;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_sse42(bytes, crc);
#endif
  return detail::crc32c_portable(bytes, crc);
}

}  // namespace mooncake::base
