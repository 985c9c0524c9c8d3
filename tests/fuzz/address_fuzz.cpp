// No text makes the address parser crash, and whatever it accepts is printed and read back as
// itself.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "net/address.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto address = mooncake::net::parse_address(text, 12001);
  if (!address) return 0;
  const auto again = mooncake::net::parse_address(to_string(*address), 0);
  if (!again || !(*again == *address)) std::abort();
  return 0;
}
