// A block's bytes are a function of id, position, seed and offset alone, and any other bytes are
// noticed at the right offset: every single flipped byte, stale blocks, shifts, swaps, short reads.
#include "workload/block_content.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <vector>

namespace mooncake::workload {
namespace {

std::vector<std::byte> block(std::size_t size, std::uint64_t id, std::uint64_t position = 3,
                             std::uint64_t seed = 1) {
  std::vector<std::byte> bytes(size);
  fill_block(bytes, id, position, seed);
  return bytes;
}

std::uint64_t word(const std::vector<std::byte>& bytes, std::size_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * 8, 8);
  return value;
}

TEST(BlockContent, EverySizeAndAlignmentIsRightAndNoByteOutsideIsTouched) {
  const std::vector<std::byte> whole = block(700, 5);
  for (std::size_t size = 0; size <= 600; ++size) {
    const std::size_t shift = size % 9;
    std::vector<std::byte> memory(size + 32, std::byte{0xEE});
    const std::span<std::byte> out(memory.data() + shift, size);
    fill_block(out, 5, 3, 1);
    ASSERT_TRUE(std::equal(out.begin(), out.end(), whole.begin())) << size;
    ASSERT_EQ(std::count(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift),
                         std::byte{0xEE}),
              static_cast<std::ptrdiff_t>(shift));
    ASSERT_EQ(memory[shift + size], std::byte{0xEE}) << size;
    ASSERT_EQ(verify_block(out, 5, 3, 1), std::nullopt) << size;
  }
}

TEST(BlockContent, EveryWrongByteIsFoundWhereItIs) {
  std::vector<std::byte> bytes = block(20'011, 8);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{1};
    ASSERT_EQ(verify_block(bytes, 8, 3, 1), at);
    bytes[at] ^= std::byte{1};
  }
}

RC_GTEST_PROP(BlockContent, TheFirstOfSeveralWrongBytesIsNamed, ()) {
  const auto size = *rc::gen::inRange<std::size_t>(1, 70'000);
  const auto wrong = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, size)));
  const auto id = *rc::gen::arbitrary<std::uint64_t>();
  const auto position = *rc::gen::arbitrary<std::uint64_t>();
  std::vector<std::byte> bytes = block(size, id, position);
  for (const std::size_t at : wrong) {
    bytes[at] = ~block(size, id, position)[at];
  }
  RC_ASSERT(verify_block(bytes, id, position, 1) == *std::min_element(wrong.begin(), wrong.end()));
}

TEST(BlockContent, AnotherIdPositionOrSeedDiffersInEveryWord) {
  constexpr std::size_t kSize = 65'536;
  const std::vector<std::byte> base = block(kSize, 7, 2, 1);
  for (const auto& other : {block(kSize, 8, 2, 1), block(kSize, 7, 3, 1), block(kSize, 7, 2, 2),
                            block(kSize, 2, 7, 1), block(kSize, 1, 2, 7)}) {
    for (std::size_t i = 0; i < kSize / 8; ++i) {
      ASSERT_NE(word(base, i), word(other, i)) << i;
    }
  }
}

TEST(BlockContent, NoWordComesTwiceInOrAmongBlocks) {
  std::unordered_set<std::uint64_t> words;
  std::size_t count = 0;
  for (std::uint64_t id = 0; id < 16; ++id) {
    const std::vector<std::byte> bytes = block(65'536, id, id);
    for (std::size_t i = 0; i < bytes.size() / 8; ++i, ++count) {
      words.insert(word(bytes, i));
    }
  }
  EXPECT_EQ(words.size(), count);
}

TEST(BlockContent, ShiftedSwappedAndTornBytesAreNoticed) {
  const std::vector<std::byte> bytes = block(16'384, 7);
  for (const std::size_t shift : {1u, 7u, 8u, 64u, 128u, 4096u, 8192u}) {
    std::vector<std::byte> shifted(bytes.begin() + static_cast<std::ptrdiff_t>(shift), bytes.end());
    const auto wrong = verify_block(shifted, 7, 3, 1);
    ASSERT_TRUE(wrong.has_value()) << shift;
    EXPECT_LT(*wrong, 16u) << shift;
  }
  std::vector<std::byte> swapped = bytes;
  std::swap_ranges(swapped.begin() + 4096, swapped.begin() + 8192, swapped.begin() + 8192);
  EXPECT_TRUE(verify_block(swapped, 7, 3, 1).has_value());
  std::vector<std::byte> torn = bytes;
  const std::vector<std::byte> stale = block(16'384, 9);
  std::copy(stale.begin() + 12'288, stale.end(), torn.begin() + 12'288);
  EXPECT_GE(verify_block(torn, 7, 3, 1).value(), 12'288u);
  EXPECT_TRUE(verify_block(std::vector<std::byte>(16'384), 7, 3, 1).has_value());
}

TEST(BlockContent, TheBytesAreTheSameInEveryRelease) {
  // Nodes of two versions check each other's blocks.
  const std::vector<std::byte> bytes = block(256, 42, 17, 1);
  EXPECT_EQ(word(bytes, 0), 14040082476441296495u);
  EXPECT_EQ(word(bytes, 31), 2063888134491591367u);
}

TEST(BlockKey, NamesModelSeedAndId) {
  EXPECT_EQ(block_key("demo", 1, 0), "kv/demo/1/0");
  EXPECT_EQ(block_key("demo", 18446744073709551615u, 18446744073709551615u),
            "kv/demo/18446744073709551615/ffffffffffffffff");
}

}  // namespace
}  // namespace mooncake::workload
