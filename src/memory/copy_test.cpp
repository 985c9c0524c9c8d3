// Proves that copies are right at every alignment and at sizes around every border, and touch
// nothing outside.
#include "memory/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace mooncake::memory {
namespace {

TEST(Copy, EverySizeAndAlignmentIsExact) {
  constexpr std::size_t kEdge = 256;
  const std::size_t sizes[] = {0,
                               1,
                               31,
                               127,
                               128,
                               129,
                               4096,
                               kStreamFrom - 1,
                               kStreamFrom,
                               kStreamFrom + 1,
                               kStreamFrom + 127,
                               kStreamFrom + 4095};
  std::vector<std::byte> from(kStreamFrom + 2 * kEdge + 4096);
  for (std::size_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<std::byte>(i * 131 >> 3);
  for (const std::size_t size : sizes) {
    for (const std::size_t to_offset : {0u, 1u, 17u, 64u, 127u}) {
      for (const std::size_t from_offset : {0u, 3u, 32u}) {
        std::vector<std::byte> to(size + 2 * kEdge, std::byte{0xee});
        copy_bytes(to.data() + to_offset, from.data() + from_offset, size);
        const auto is_untouched = [](std::byte b) { return b == std::byte{0xee}; };
        const auto begin = to.begin() + static_cast<std::ptrdiff_t>(to_offset);
        const auto end = begin + static_cast<std::ptrdiff_t>(size);
        EXPECT_TRUE(std::all_of(to.begin(), begin, is_untouched)) << size;
        EXPECT_TRUE(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(from_offset)))
            << size << " at " << to_offset << " from " << from_offset;
        EXPECT_TRUE(std::all_of(end, to.end(), is_untouched)) << size;
      }
    }
  }
}

}  // namespace
}  // namespace mooncake::memory
