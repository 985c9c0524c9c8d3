// Scattered memory in one call.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>

namespace mooncake::base {

using ConstBuffer = std::span<const std::byte>;
using MutableBuffer = std::span<std::byte>;
using ConstBuffers = std::span<const ConstBuffer>;

inline std::size_t total_size(ConstBuffers buffers) {
  return std::accumulate(buffers.begin(), buffers.end(), std::size_t{0},
                         [](std::size_t sum, ConstBuffer b) { return sum + b.size(); });
}
inline ConstBuffer as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string_view as_text(ConstBuffer bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace mooncake::base
