// The header's bytes are as the format page says, and nothing that was changed on the way is
// believed: every flip of one bit, and random damage, is refused.
#include "net/frame.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"

namespace mooncake::net {
namespace {

FrameHeader sample() {
  FrameHeader header;
  header.method = 0x0203;
  header.flags = kReply | kMore;
  header.request_id = 0x11223344;
  header.deadline_us = 1000;
  header.epoch = 7;
  header.incarnation = 0x0102030405060708;
  header.trace_id = 0x1112131415161718;
  header.payload_length = 4096;
  return header;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte b : bytes) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[std::to_integer<int>(b) >> 4];
    text += digits[std::to_integer<int>(b) & 15];
  }
  return text;
}

// Bytes of a header with a right checksum.
FrameBytes sealed(const FrameHeader& header) { return encode(header); }

std::string why(const FrameHeader& header) {
  Result<FrameHeader> decoded = decode(sealed(header));
  return decoded ? "" : decoded.error().message();
}

TEST(Frame, BytesAreAsTheFormatSays) {
  const FrameBytes bytes = encode(sample());
  EXPECT_EQ(
      hex(std::span(bytes).first<44>()),
      "4d434631013003020900000044332211e8030000070000000807060504030201181716151413121100100000");
  std::uint32_t crc;
  std::memcpy(&crc, bytes.data() + 44, sizeof crc);
  EXPECT_EQ(crc, base::crc32c(std::span(bytes).first(44)));
}

TEST(Frame, EveryFlippedBitIsRefused) {
  for (std::size_t bit = 0; bit < 8 * kFrameHeaderSize; ++bit) {
    FrameBytes bytes = encode(sample());
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Result<FrameHeader> decoded = decode(bytes);
    ASSERT_FALSE(decoded) << "bit " << bit;
    EXPECT_EQ(decoded.error().code(), Code::kProtocolError);
    EXPECT_FALSE(decoded.error().detail().empty());
  }
}

RC_GTEST_PROP(Frame, DecodesWhatWasEncoded, ()) {
  FrameHeader header;
  header.method = *rc::gen::arbitrary<std::uint16_t>();
  header.flags = *rc::gen::element<std::uint16_t>(0, kReply, kReply | kError, kData, kData | kMore,
                                                  kMore, kData | kAbandon, kReply | kData | kMore);
  header.request_id = *rc::gen::arbitrary<std::uint32_t>();
  header.deadline_us = *rc::gen::arbitrary<std::uint32_t>();
  header.epoch = *rc::gen::arbitrary<std::uint32_t>();
  header.incarnation = *rc::gen::arbitrary<std::uint64_t>();
  header.trace_id = *rc::gen::arbitrary<std::uint64_t>();
  header.payload_length = *rc::gen::inRange<std::uint32_t>(0, kMaxDataPayload + 1);
  Result<FrameHeader> decoded = decode(encode(header));
  RC_ASSERT(decoded.has_value());
  decoded->crc = header.crc;
  RC_ASSERT(std::memcmp(&*decoded, &header, sizeof header) == 0);
}

RC_GTEST_PROP(Frame, DamageIsRefused, (std::vector<std::uint8_t> noise)) {
  FrameBytes bytes = encode(sample());
  const FrameBytes before = bytes;
  for (std::uint8_t n : noise) {
    bytes[n % kFrameHeaderSize] ^= static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
  }
  if (bytes == before) return;
  RC_ASSERT(!decode(bytes).has_value());
}

TEST(Frame, NamesWhatIsWrong) {
  FrameHeader header = sample();
  header.magic = 0x47455420;
  EXPECT_NE(why(header).find("magic"), std::string::npos);
  header = sample();
  header.flags = 32;
  EXPECT_NE(why(header).find("flags 0x20"), std::string::npos);
  header = sample();
  header.flags = kError;
  EXPECT_NE(why(header).find("flags"), std::string::npos);
  header = sample();
  for (std::uint8_t length : {0, 44, 50, 255}) {
    header.header_length = length;
    EXPECT_NE(why(header).find("header length"), std::string::npos) << int{length};
  }
  header = sample();
  header.payload_length = kMaxControlPayload + 1;
  EXPECT_NE(why(header).find("16777217 bytes"), std::string::npos);
  header.flags = kData;
  header.payload_length = kMaxDataPayload + 1;
  EXPECT_NE(why(header).find("at most 8388608"), std::string::npos);
}

TEST(Frame, VersionMismatchNamesBoth) {
  FrameHeader header = sample();
  header.version = 3;
  Result<FrameHeader> decoded = decode(encode(header), 2);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code(), Code::kVersionMismatch);
  EXPECT_EQ(decoded.error().detail(), "frame: version 3, this connection speaks 2");
  EXPECT_TRUE(decode(encode(header), 3));
}

// Type, length, bytes; checksum of all before it at the end.
std::vector<std::byte> extensions(std::vector<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values)
    bytes.push_back(static_cast<std::byte>(value));
  const std::uint32_t crc = base::crc32c(bytes);
  const auto* begin = reinterpret_cast<const std::byte*>(&crc);
  bytes.insert(bytes.end(), begin, begin + sizeof crc);
  return bytes;
}

TEST(Frame, UnknownExtensionsAreSkippedBrokenOnesRefused) {
  EXPECT_TRUE(check_extensions({}));
  EXPECT_TRUE(check_extensions(extensions({})));
  EXPECT_TRUE(check_extensions(extensions({99, 2, 7, 7, 0, 2, 0, 0})));
  EXPECT_FALSE(check_extensions(extensions({99, 3, 7, 7})));
  EXPECT_FALSE(check_extensions(extensions({99})));
  EXPECT_FALSE(check_extensions(std::vector<std::byte>(3)));
  std::vector<std::byte> damaged = extensions({99, 2, 7, 7});
  damaged[2] = std::byte{8};
  EXPECT_FALSE(check_extensions(damaged));
}

}  // namespace
}  // namespace mooncake::net
