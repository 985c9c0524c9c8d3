// Any text is refused with words that quote it, or is a duration of 0 to 100 years that is written
// and read back as the same. The first byte chooses the unit of bare numbers.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "mooncake/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array<std::string_view, 4> kUnits = {"", "ms", "s", "h"};
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto duration = mooncake::parse_duration(text, kUnits[data[0] % kUnits.size()]);
  if (!duration) {
    if (duration.error().detail().empty()) std::abort();
    return 0;
  }
  if (duration->count() < 0 || *duration > std::chrono::hours(24 * 36525)) std::abort();
  const auto again = mooncake::parse_duration(mooncake::format_duration(*duration), "");
  if (!again || *again != *duration) std::abort();
  return 0;
}
