#include "memory/copy.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mooncake::memory {

namespace {

#if defined(__x86_64__)

// `to` is aligned to 32, `size` a multiple of 128.
__attribute__((target("avx2"))) void stream_avx2(std::byte* to, const std::byte* from,
                                                 std::size_t size) {
  for (std::size_t at = 0; at < size; at += 128) {
    const auto* const in = reinterpret_cast<const __m256i*>(from + at);
    auto* const out = reinterpret_cast<__m256i*>(to + at);
    const __m256i a = _mm256_loadu_si256(in);
    const __m256i b = _mm256_loadu_si256(in + 1);
    const __m256i c = _mm256_loadu_si256(in + 2);
    const __m256i d = _mm256_loadu_si256(in + 3);
    _mm256_stream_si256(out, a);
    _mm256_stream_si256(out + 1, b);
    _mm256_stream_si256(out + 2, c);
    _mm256_stream_si256(out + 3, d);
  }
}

void stream_sse2(std::byte* to, const std::byte* from, std::size_t size) {
  for (std::size_t at = 0; at < size; at += 64) {
    const auto* const in = reinterpret_cast<const __m128i*>(from + at);
    auto* const out = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
}

void stream(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kLine = 128;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  const std::size_t body = (size - head) / kLine * kLine;
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  (has_avx2 ? stream_avx2 : stream_sse2)(to + head, from + head, body);
  std::memcpy(to + head + body, from + head + body, size - head - body);
}

#else

void stream(std::byte* to, const std::byte* from, std::size_t size) { std::memcpy(to, from, size); }

#endif

}  // namespace

void store_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  if (size < kStreamFrom) {
    std::memcpy(to, from, size);
  } else {
    stream(to, from, size);
  }
}

}  // namespace mooncake::memory
