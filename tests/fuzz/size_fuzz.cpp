// Any text is refused with words that quote it, or is a size up to 2^63-1 that is written and read
// back as the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "mooncake/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto bytes = mooncake::parse_size(text);
  if (!bytes) {
    if (bytes.error().detail().empty()) std::abort();
    return 0;
  }
  if (*bytes >> 63 != 0) std::abort();
  const auto again = mooncake::parse_size(mooncake::format_size(*bytes));
  if (!again || *again != *bytes) std::abort();
  return 0;
}
