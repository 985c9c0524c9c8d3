// A header is refused with words, or means exactly its bytes: what was decoded is encoded to the
// same. With an odd first byte the checksum is mended, so that the checks behind it are reached.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mooncake::net;
  if (size < 1 + kFrameHeaderSize) return 0;
  FrameBytes bytes;
  std::memcpy(bytes.data(), data + 1, bytes.size());
  if ((data[0] & 1) != 0) {
    FrameHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes = encode(header);
  }
  const auto header = decode(bytes);
  if (!header) {
    if (header.error().detail().empty()) std::abort();
    return 0;
  }
  const std::uint32_t limit = (header->flags & kData) != 0 ? kMaxDataPayload : kMaxControlPayload;
  if (header->payload_length > limit || header->header_length < kFrameHeaderSize ||
      (header->flags & ~kKnownFrameFlags) != 0 || encode(*header) != bytes) {
    std::abort();
  }
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1 + kFrameHeaderSize);
  const auto extensions = check_extensions(rest);
  if (!extensions && extensions.error().detail().empty()) std::abort();
  return 0;
}
