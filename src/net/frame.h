// The frame: 48 bytes before every payload on every wire. docs/formats.md, "Frame".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "mooncake/result.h"

namespace mooncake::net {

inline constexpr std::size_t kFrameHeaderSize = 48;
// "MCF1" in memory. Its first 8 bytes read as a little-endian length exceed every limit of the
// stock handshake, and its first byte is no opcode of the stock data header: one port can serve all
// three.
inline constexpr std::uint32_t kFrameMagic = 0x3146434D;
inline constexpr std::uint8_t kFrameVersion = 1;        // the version this build writes
inline constexpr std::uint8_t kOldestFrameVersion = 1;  // the oldest it reads
inline constexpr std::uint8_t kHelloFrameVersion = 1;   // of the hello, for ever

inline constexpr std::uint32_t kMaxControlPayload = 16u << 20;
inline constexpr std::uint32_t kMaxDataPayload = 8u << 20;

enum FrameFlags : std::uint16_t {
  kReply = 1,     // answers the request of this id
  kError = 2,     // the payload is an ErrorReply (net/common.fbs); only with kReply
  kData = 4,      // raw bytes that belong to the message of this id; no body
  kMore = 8,      // more frames of this message follow
  kAbandon = 16,  // the sender gave this message up: what came of it is not to be believed
};
inline constexpr std::uint16_t kKnownFrameFlags = 31;

// Method numbers are part of the protocol. 0x00xx belongs to net, 0x01xx to transfer, 0x02xx to the
// store's Master.
enum class Method : std::uint16_t {
  kHello = 0x0001,
  kHelloProof = 0x0002,
  kGoodbye = 0x0003,

  kDescribeRegions = 0x0101,
  kWrite = 0x0102,
  kRead = 0x0103,
  kFence = 0x0104,
  kOpenHost = 0x0105,
  kNotify = 0x0106,
  kBeginWrite = 0x0107,
  kEndWrite = 0x0108,
  kPin = 0x0109,
  kUnpin = 0x010A,

  kMount = 0x0201,
  kUnmount = 0x0202,
  kHeartbeat = 0x0203,
  kGrant = 0x0210,
  kPublish = 0x0211,
  kRevoke = 0x0212,
  kLocate = 0x0213,
  kExist = 0x0214,
  kRemove = 0x0215,
  kSweep = 0x0216,
  kWhy = 0x0217,
};

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint8_t version = kFrameVersion;
  std::uint8_t header_length = kFrameHeaderSize;  // with extensions (type u8, length u8, bytes) and
                                                  // their own CRC-32C; unknown types are skipped
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::uint16_t reserved = 0;
  std::uint32_t request_id = 0;
  std::uint32_t deadline_us = 0;  // time left when the frame was made; 0 in replies
  std::uint32_t epoch = 0;        // highest leader epoch the sender knows
  std::uint64_t incarnation = 0;  // of the sender
  std::uint64_t trace_id = 0;
  std::uint32_t payload_length = 0;
  std::uint32_t crc = 0;  // CRC-32C of the 44 bytes before it
};
static_assert(sizeof(FrameHeader) == kFrameHeaderSize);
static_assert(offsetof(FrameHeader, request_id) == 12);
static_assert(offsetof(FrameHeader, incarnation) == 24);
static_assert(offsetof(FrameHeader, payload_length) == 40);

using FrameBytes = std::array<std::byte, kFrameHeaderSize>;

// Of at least the first 4 bytes of a frame: kProtocolError when they are not the magic. Tells
// garbage from a frame of which the rest is still to come.
Result<void> check_magic(std::span<const std::byte> bytes);
// Fills in the CRC.
FrameBytes encode(FrameHeader header);
// Checks magic, version, lengths, flags and CRC before anything is believed. kProtocolError names
// what is wrong; kVersionMismatch names both versions. The hello and its replies go out as version
// 1 without extensions for ever, so that any two builds can talk about their versions.
Result<FrameHeader> decode(std::span<const std::byte, kFrameHeaderSize> bytes,
                           std::uint8_t version = kFrameVersion);
// `bytes` are the header_length - 48 bytes after the header: extensions (type 0 is padding), and in
// the last 4 bytes the CRC-32C of those before.
Result<void> check_extensions(std::span<const std::byte> bytes);

}  // namespace mooncake::net
