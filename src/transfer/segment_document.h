// Segment documents: what an engine publishes in a metastore, as JSON that other engines of the
// same family read, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mooncake/result.h"
#include "net/address.h"

namespace mooncake::transfer {

// mooncake/rpc_meta/<name>: where the engine listens.
std::string rpc_meta_key(std::string_view name);
std::string encode_rpc_meta(const net::Address& address);
Result<net::Address> decode_rpc_meta(std::string_view text);

// mooncake/ram/<name>: the segment. Its buffers are not listed: keys are asked of the engine
// itself.
struct SegmentDocument {
  std::string name;
  std::string protocol = "tcp";
  net::Address data;         // host may be empty: then that of rpc_meta counts
  bool own_framing = false;  // speaks docs/formats.md, and not only the published data header
};
std::string segment_key(std::string_view name);
std::string encode_segment(const SegmentDocument& document, std::int64_t unix_seconds);
// kMetadataError names what is wrong with it.
Result<SegmentDocument> decode_segment(std::string_view text);

}  // namespace mooncake::transfer
