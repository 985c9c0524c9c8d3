#include "workload/block_content.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace mooncake::workload {
namespace {

// The bytes are compared between machines.
static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;  // odd: counts through all 64-bit values
constexpr std::size_t kWord = sizeof(std::uint64_t);

// One to one on 64 bits (the finalizer of splitmix64).
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::uint64_t base_of(std::uint64_t id, std::uint64_t position, std::uint64_t seed) {
  return scramble(scramble(scramble(seed + kStep) + position) + id);
}

// One to one, so that different counters give different words; without a multiplication, which
// plain SSE2 has not for 64-bit lanes.
template <typename Lanes>
Lanes mix(Lanes x) {
  x ^= x >> 31;
  x ^= x << 17;
  return x;
}

// Two words in one register; the compiler's own vectors also work where auto-vectorising is off.
using Pair = std::uint64_t __attribute__((vector_size(16)));
constexpr std::size_t kGroup = 8 * sizeof(Pair);

// The words of a block from its begin on, eight registers at a time.
class Words {
 public:
  explicit Words(std::uint64_t base) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      counters_[i] = Pair{base + 2 * i * kStep, base + (2 * i + 1) * kStep};
    }
  }
  Pair word(std::size_t i) const { return mix(counters_[i]); }
  void advance() {
    for (Pair& counter : counters_) {
      counter += 16 * kStep;
    }
  }

 private:
  Pair counters_[8];
};

void fill_tail(std::byte* out, std::size_t size, std::uint64_t counter) {
  for (std::size_t at = 0; at < size; at += kWord, counter += kStep) {
    const std::uint64_t word = mix(counter);
    std::memcpy(out + at, &word, std::min(kWord, size - at));
  }
}

// Whether `size` bytes, a multiple of kGroup, are right. Looks at all of them: no branch on data.
bool groups_right(const std::byte* in, std::size_t size, Words& words) {
  Pair wrong_a{}, wrong_b{};
  for (std::size_t at = 0; at < size; at += kGroup) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 8; i += 2) {
      Pair a, b;
      std::memcpy(&a, in + at + i * sizeof(Pair), sizeof(Pair));
      std::memcpy(&b, in + at + (i + 1) * sizeof(Pair), sizeof(Pair));
      wrong_a |= a ^ words.word(i);
      wrong_b |= b ^ words.word(i + 1);
    }
    words.advance();
  }
  wrong_a |= wrong_b;
  return (wrong_a[0] | wrong_a[1]) == 0;
}

// First wrong byte of `size` bytes, the first of which has the word of `counter`; `size` if none.
std::size_t first_wrong(const std::byte* in, std::size_t size, std::uint64_t counter) {
  for (std::size_t at = 0; at < size; at += kWord, counter += kStep) {
    const std::uint64_t expected = mix(counter);
    const std::size_t length = std::min(kWord, size - at);
    std::uint64_t word = expected;
    std::memcpy(&word, in + at, length);
    if (word != expected) {
      return at + static_cast<std::size_t>(std::countr_zero(word ^ expected)) / 8;
    }
  }
  return size;
}

}  // namespace

void fill_block(std::span<std::byte> out, std::uint64_t id, std::uint64_t position,
                std::uint64_t seed) {
  const std::uint64_t base = base_of(id, position, seed);
  const std::size_t groups = out.size() / kGroup * kGroup;
  Words words(base);
  for (std::size_t at = 0; at < groups; at += kGroup) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      const Pair pair = words.word(i);
      std::memcpy(out.data() + at + i * sizeof(Pair), &pair, sizeof(Pair));
    }
    words.advance();
  }
  fill_tail(out.data() + groups, out.size() - groups, base + groups / kWord * kStep);
}

std::optional<std::size_t> verify_block(std::span<const std::byte> block, std::uint64_t id,
                                        std::uint64_t position, std::uint64_t seed) {
  constexpr std::size_t kChunk = 64 * kGroup;
  const std::uint64_t base = base_of(id, position, seed);
  const std::size_t groups = block.size() / kGroup * kGroup;
  Words words(base);
  std::size_t at = 0;
  while (at < groups) {
    const std::size_t size = std::min(kChunk, groups - at);
    if (!groups_right(block.data() + at, size, words)) {
      break;
    }
    at += size;
  }
  const std::size_t left = block.size() - at;
  const std::size_t wrong =
      left == 0 ? 0 : first_wrong(block.data() + at, left, base + at / kWord * kStep);
  return wrong == left ? std::nullopt : std::optional(at + wrong);
}

std::string block_key(std::string_view model, std::uint64_t seed, std::uint64_t id) {
  char hex[16];
  const std::to_chars_result end = std::to_chars(hex, hex + sizeof(hex), id, 16);
  std::string key("kv/");
  key.append(model).append("/").append(std::to_string(seed)).append("/");
  return key.append(hex, end.ptr);
}

}  // namespace mooncake::workload
