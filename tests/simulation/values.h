// Values that say whose they are: a wrong, mixed, shifted or foreign byte is noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace mooncake::simulation {

enum class ValueId : std::uint64_t {};

// `size` bytes, at least kSmallestValue.
inline constexpr std::size_t kSmallestValue = 24;
std::vector<std::byte> make_value(ValueId id, std::string_view key, std::size_t size);
// The id, when these are exactly the bytes of one whole value of this key.
std::optional<ValueId> read_value(std::span<const std::byte> bytes, std::string_view key);

}  // namespace mooncake::simulation
