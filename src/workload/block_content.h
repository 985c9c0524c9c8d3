// Bytes of a KV block that any reader can check without having seen the writer's. Stateless,
// callable from any thread, no allocation except for the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mooncake::workload {

// Each 8-byte word depends on id, position (of the block in its request), seed and its own offset;
// no two words of a block are equal, nor are two blocks' words at the same offset. So stale,
// mixed-up, shifted or missing bytes show. Any size and alignment.
void fill_block(std::span<std::byte> out, std::uint64_t id, std::uint64_t position,
                std::uint64_t seed);

// Offset of the first byte that differs from fill_block()'s; nullopt when all are right.
std::optional<std::size_t> verify_block(std::span<const std::byte> block, std::uint64_t id,
                                        std::uint64_t position, std::uint64_t seed);

// The Store's key of a block: "kv/<model>/<seed>/<id>", seed in decimal, id in hexadecimal.
std::string block_key(std::string_view model, std::uint64_t seed, std::uint64_t id);

}  // namespace mooncake::workload
