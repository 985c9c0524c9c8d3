// Messages between two engines of one host, over a Unix socket (docs/formats.md, "Host session").
// Of fixed size; checked by who receives them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "base/buffers.h"
#include "mooncake/result.h"
#include "net/rpc.h"

namespace mooncake::transfer::shm {

using Token = std::array<std::uint8_t, 32>;

inline constexpr std::uint64_t kSessionMagic = 0x3130545348434d4d;  // "MMCHST01"
inline constexpr std::uint32_t kSessionVersion = 2;

enum class Kind : std::uint32_t {
  kHello = 1,
  kWelcome = 2,
  kAskPool = 3,
  kPool = 4,
  kDropPool = 5
};

struct Header {
  std::uint64_t magic = kSessionMagic;
  std::uint32_t version = kSessionVersion;
  Kind kind{};
};
// From the process that connected, first.
struct Hello {
  Header header{.kind = Kind::kHello};
  Token token{};
};
// Its answer, with the descriptors of the gate's table and of a page of slots.
struct Welcome {
  Header header{.kind = Kind::kWelcome};
  std::uint64_t incarnation = 0;  // of the engine that owns the gate
  std::uint64_t table_size = 0;
  std::uint64_t slots_size = 0;
  std::uint64_t guest = 0;  // GuestId: what the copier asks the owner for goes under this name
};
struct AskPool {
  Header header{.kind = Kind::kAskPool};
  std::uint64_t pool = 0;
};
// With the descriptor of the pool, unless it is gone: then `size` is 0.
struct PoolGiven {
  Header header{.kind = Kind::kPool};
  std::uint64_t pool = 0;
  std::uint64_t size = 0;
};
// The pool is shared no more; its memory goes when all have unmapped it.
struct DropPool {
  Header header{.kind = Kind::kDropPool};
  std::uint64_t pool = 0;
};
static_assert(sizeof(Header) == 16 && sizeof(Hello) == 48 && sizeof(Welcome) == 48);
static_assert(sizeof(AskPool) == 24 && sizeof(PoolGiven) == 32 && sizeof(DropPool) == 24);

template <typename Message>
base::ConstBuffer bytes_of(const Message& message) {
  return {reinterpret_cast<const std::byte*>(&message), sizeof message};
}
// The kind of a message, when magic and version are ours.
inline std::optional<Kind> kind_of(base::ConstBuffer bytes) {
  Header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kSessionMagic || header.version != kSessionVersion) return std::nullopt;
  return header.kind;
}
// A whole message of this kind, or none.
template <typename Message>
std::optional<Message> read(base::ConstBuffer bytes) {
  Message message;
  const Kind wanted = message.header.kind;
  if (bytes.size() != sizeof message || kind_of(bytes) != wanted) return std::nullopt;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

// kOpenHost (transfer.fbs).
struct Invitation {
  std::string socket;
  Token token{};
};
net::Bytes encode_open_host();
net::Bytes encode_invitation(const Invitation& invitation);
Result<Invitation> decode_invitation(base::ConstBuffer reply);

}  // namespace mooncake::transfer::shm
