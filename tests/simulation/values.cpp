#include "values.h"

#include <cstring>

#include "base/hash.h"

namespace mooncake::simulation {

namespace {

struct Header {
  std::uint64_t id;
  std::uint64_t key_hash;
  std::uint64_t size;
};
static_assert(sizeof(Header) == kSmallestValue);

std::byte pattern(std::uint64_t id, std::size_t offset) {
  return static_cast<std::byte>((id * 0x9E3779B97F4A7C15u + offset * 0xD6E8FEB86659FD93u) >> 56);
}

}  // namespace

std::vector<std::byte> make_value(ValueId id, std::string_view key, std::size_t size) {
  std::vector<std::byte> bytes(size);
  const Header header{static_cast<std::uint64_t>(id), base::hash64(key, 0), size};
  std::memcpy(bytes.data(), &header, sizeof header);
  for (std::size_t i = sizeof header; i < size; ++i)
    bytes[i] = pattern(header.id, i);
  return bytes;
}

std::optional<ValueId> read_value(std::span<const std::byte> bytes, std::string_view key) {
  Header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.key_hash != base::hash64(key, 0) || header.size != bytes.size()) return std::nullopt;
  for (std::size_t i = sizeof header; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(header.id, i)) return std::nullopt;
  }
  return static_cast<ValueId>(header.id);
}

}  // namespace mooncake::simulation
