// Words that the Master and its clients share.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "memory/extent_table.h"
#include "mooncake/store.h"

namespace mooncake::store {

inline constexpr std::size_t kMaxReplicas = 4;
inline constexpr std::size_t kMaxBatch = 4096;  // items of one message; clients split
// Bytes of the name of a client, segment or host; host:port, with a host as long as DNS allows,
// fits.
inline constexpr std::size_t kMaxName = 300;
inline constexpr std::size_t kMaxPreferred = 64;  // segments that one message may name
inline constexpr std::size_t kMaxWhyKeys = 256;   // of one kWhy message; clients split
inline constexpr std::size_t kMaxWhyEvents = 32;  // of one key in its reply
inline constexpr std::size_t kMaxKeyLength = memory::kMaxKeyLength;
inline constexpr std::uint64_t kMaxSegment = std::uint64_t{1} << 44;  // 2^32 units

// One store client; drawn at its start, never that of a process or engine. The Master takes whoever
// says it for that client, so it is shown to nobody else: what is shown is
// store/master/client_names.h's.
enum class ClientId : std::uint64_t {};

// Where one replica lies: a segment's handle in the Master's table (never reused while anything can
// refer to it), and the extent's first unit.
struct Placement {
  std::uint32_t segment = 0;
  std::uint32_t unit = 0;
  std::uint64_t offset() const { return std::uint64_t{unit} * memory::kExtentUnit; }
  bool operator==(const Placement&) const = default;
};
static_assert(sizeof(Placement) == 8);

// Bytes that an object of `size` occupies.
constexpr std::uint64_t units_for(std::uint64_t size) {
  return (size + memory::kExtentUnit - 1) / memory::kExtentUnit;
}

// How to reach the memory of one mounted segment.
struct SegmentAddress {
  // Both are printable UTF-8 of at most kMaxName bytes: they are shown in metrics and logs.
  std::string name;  // host:port of the owner's engine
  std::string host;  // for placement on distinct hosts; may be empty
  base::Uuid id;
  base::SegmentIncarnation incarnation{};
  base::Incarnation owner{};  // of the engine that serves it
  std::uint64_t base = 0;
  std::uint64_t size = 0;
  std::uint64_t region_key = 0;
};

}  // namespace mooncake::store
