// Proves: CRC-32C equals the published vectors (RFC 3720 B.4) and chains at any cut, the table
// version equals the instruction's for random bytes, and the key hashes depend on every byte and on
// the seed.
#include "base/hash.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/buffers.h"

namespace mooncake::base {
namespace {

std::vector<std::byte> bytes_of(std::size_t count, int first, int step) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(first + step * static_cast<int>(i));
  }
  return bytes;
}

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(crc32c(as_bytes("")), 0u);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(bytes_of(32, 0, 0)), 0x8A9136AAu);
  EXPECT_EQ(crc32c(bytes_of(32, 0xff, 0)), 0x62A8AB43u);
  EXPECT_EQ(crc32c(bytes_of(32, 0, 1)), 0x46DD794Eu);
  EXPECT_EQ(crc32c(bytes_of(32, 31, -1)), 0x113FDB5Cu);
  EXPECT_EQ(detail::crc32c_portable(as_bytes("123456789"), 0), 0xE3069283u);
}

RC_GTEST_PROP(Crc32c, BothWaysAgreeAndChainAtAnyCut, (const std::string& text)) {
  const auto bytes = as_bytes(text);
  const auto cut = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
  const std::uint32_t whole = crc32c(bytes);
  RC_ASSERT(detail::crc32c_portable(bytes, 0) == whole);
  RC_ASSERT(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))) == whole);
  RC_ASSERT(detail::crc32c_portable(bytes.subspan(cut), crc32c(bytes.first(cut))) == whole);
}

TEST(Hash, IsTheSameInEveryProcessAndRelease) {
  // XXH3 of the empty text with seed 0, from its specification.
  EXPECT_EQ(hash64("", 0), 0x2D06800538D394C2u);
  EXPECT_EQ(hash128("", 0), (Hash128{0x99AA06D3014798D8u, 0x6001C324468D497Fu}));
}

RC_GTEST_PROP(Hash, EveryByteAndTheSeedMatter, (std::string text, std::uint64_t seed)) {
  const Hash128 before = hash128(text, seed);
  const std::uint64_t before64 = hash64(text, seed);
  RC_ASSERT(hash128(text, seed) == before);
  RC_ASSERT(!(hash128(text, seed + 1) == before));
  RC_PRE(!text.empty());
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  text[at] = static_cast<char>(text[at] ^ 1);
  RC_ASSERT(!(hash128(text, seed) == before));
  RC_ASSERT(hash64(text, seed) != before64);
}

}  // namespace
}  // namespace mooncake::base
