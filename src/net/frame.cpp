#include "net/frame.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/hash.h"

namespace mooncake::net {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is copied as it lies");

constexpr std::size_t kCrcOffset = offsetof(FrameHeader, crc);
constexpr std::size_t kMaxHeaderLength = 252;

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return base::crc32c(bytes.first(kCrcOffset));
}

Result<void> check_flags(const FrameHeader& header) {
  if ((header.flags & ~kKnownFrameFlags) != 0) {
    return fail(Code::kProtocolError, fmt::format("frame: unknown flags {:#x}", header.flags));
  }
  if ((header.flags & kError) != 0 && (header.flags & (kReply | kData)) != kReply) {
    return fail(Code::kProtocolError,
                fmt::format("frame: flags {:#x}: an error is the body of a reply", header.flags));
  }
  return {};
}

Result<void> check_lengths(const FrameHeader& header) {
  if (header.header_length < kFrameHeaderSize || header.header_length % 4 != 0 ||
      header.header_length > kMaxHeaderLength) {
    return fail(Code::kProtocolError, fmt::format("frame: header length {}", header.header_length));
  }
  const std::uint32_t limit = (header.flags & kData) != 0 ? kMaxDataPayload : kMaxControlPayload;
  if (header.payload_length > limit) {
    return fail(Code::kProtocolError, fmt::format("frame: payload of {} bytes, at most {} allowed",
                                                  header.payload_length, limit));
  }
  return {};
}

}  // namespace

Result<void> check_magic(std::span<const std::byte> bytes) {
  std::uint32_t magic;
  std::memcpy(&magic, bytes.first<sizeof magic>().data(), sizeof magic);
  if (magic == kFrameMagic) return {};
  return fail(Code::kProtocolError, fmt::format("frame: magic {:#010x}", magic));
}

FrameBytes encode(FrameHeader header) {
  FrameBytes bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  header.crc = crc_of(bytes);
  std::memcpy(bytes.data() + kCrcOffset, &header.crc, sizeof header.crc);
  return bytes;
}

Result<FrameHeader> decode(std::span<const std::byte, kFrameHeaderSize> bytes,
                           std::uint8_t version) {
  MC_CHECK(check_magic(bytes));
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.crc != crc_of(bytes)) {
    return fail(Code::kProtocolError, "frame: header checksum differs");
  }
  if (header.version != version) {
    return fail(Code::kVersionMismatch, fmt::format("frame: version {}, this connection speaks {}",
                                                    header.version, version));
  }
  MC_CHECK(check_flags(header));
  MC_CHECK(check_lengths(header));
  return header;
}

Result<void> check_extensions(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  if (bytes.size() < sizeof(std::uint32_t)) {
    return fail(Code::kProtocolError, "frame: extensions without a checksum");
  }
  std::span<const std::byte> rest = bytes.first(bytes.size() - sizeof(std::uint32_t));
  std::uint32_t crc;
  std::memcpy(&crc, rest.data() + rest.size(), sizeof crc);
  if (crc != base::crc32c(rest)) {
    return fail(Code::kProtocolError, "frame: extension checksum differs");
  }
  while (!rest.empty()) {
    if (rest.size() < 2 || rest.size() - 2 < std::to_integer<std::size_t>(rest[1])) {
      return fail(Code::kProtocolError, "frame: extension is longer than its header");
    }
    rest = rest.subspan(2 + std::to_integer<std::size_t>(rest[1]));
  }
  return {};
}

}  // namespace mooncake::net
