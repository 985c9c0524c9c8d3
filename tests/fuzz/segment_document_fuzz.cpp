// Documents that a metastore gives us: decoding ends, and what was decoded says the same when it is
// written and read again.
#include <cstdlib>

#include "transfer/segment_document.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mooncake::transfer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto document = decode_segment(text)) {
    const auto again = decode_segment(encode_segment(*document, 0));
    require(again.has_value());
    require(again->data == document->data && again->name == document->name &&
            again->protocol == document->protocol && again->own_framing == document->own_framing);
  }
  if (const auto address = decode_rpc_meta(text)) {
    require(!address->host.empty() && address->port != 0);
    const auto again = decode_rpc_meta(encode_rpc_meta(*address));
    require(again.has_value() && *again == *address);
  }
  return 0;
}
