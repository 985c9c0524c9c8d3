// Identities. Each is its own type, so that an incarnation can't be passed for a version.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mooncake::base {

// One life of one process (or simulated node): random, never 0, never reused.
enum class Incarnation : std::uint64_t {};
// One mount of one segment; a remount gets a new one, and what was promised about the old is void.
enum class SegmentIncarnation : std::uint64_t {};
// Leadership of a Master; rises with every start. 0 = none.
enum class Epoch : std::uint32_t {};

// Version of an object and number of the grant it was written under: (epoch, sequence), 63 bits, so
// that with the "being written" bit it is one word of a generation table. Ordered.
class Version {
 public:
  static constexpr std::uint32_t kMaxSequence = (1u << 31) - 1;

  constexpr Version() = default;
  constexpr Version(Epoch epoch, std::uint32_t sequence)
      : value_(static_cast<std::uint64_t>(epoch) << 31 | (sequence & kMaxSequence)) {}
  static constexpr Version from_value(std::uint64_t value) {
    Version v;
    v.value_ = value & ~(std::uint64_t{1} << 63);
    return v;
  }

  constexpr std::uint64_t value() const { return value_; }
  constexpr Epoch epoch() const { return static_cast<Epoch>(value_ >> 31); }
  constexpr std::uint32_t sequence() const { return value_ & kMaxSequence; }
  constexpr bool valid() const { return value_ != 0; }
  constexpr auto operator<=>(const Version&) const = default;

 private:
  std::uint64_t value_ = 0;
};

// What a generation table holds for an extent: its version, and whether bytes are being written.
enum class Generation : std::uint64_t {};
constexpr Generation complete(Version v) { return static_cast<Generation>(v.value() << 1); }
constexpr Generation writing(Version v) { return static_cast<Generation>(v.value() << 1 | 1); }
constexpr bool is_writing(Generation g) { return (static_cast<std::uint64_t>(g) & 1) != 0; }
constexpr Version version_of(Generation g) {
  return Version::from_value(static_cast<std::uint64_t>(g) >> 1);
}

// 128 bits: a boot of a machine, a segment, a client in the outside API.
struct Uuid {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  constexpr auto operator<=>(const Uuid&) const = default;
  constexpr bool valid() const { return (high | low) != 0; }
};
// "<high>-<low>" in decimal, as the published API prints it.
std::string to_string(const Uuid& id);

// 32 hex digits, dashes anywhere: "0f5b3a2c-...". The invalid Uuid for anything else.
Uuid parse_hex_uuid(std::string_view text);

// This boot of this machine: equal on all its processes, other after a reboot or on another
// machine. Invalid where the kernel doesn't tell: then no peer counts as being on this host.
Uuid boot_id();

}  // namespace mooncake::base

template <>
struct std::hash<mooncake::base::Uuid> {
  std::size_t operator()(const mooncake::base::Uuid& id) const noexcept {
    return id.high * 0x9E3779B97F4A7C15u ^ id.low;
  }
};
