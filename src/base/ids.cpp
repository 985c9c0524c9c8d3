#include "base/ids.h"

#include <fmt/format.h>

#include <fstream>
#include <string_view>

namespace mooncake::base {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Uuid read_boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return parse_hex_uuid(text);
}

}  // namespace

std::string to_string(const Uuid& id) { return fmt::format("{}-{}", id.high, id.low); }

Uuid parse_hex_uuid(std::string_view text) {
  Uuid id;
  int digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    const int digit = hex_digit(c);
    if (digit < 0 || digits == 32) return {};
    std::uint64_t& half = digits < 16 ? id.high : id.low;
    half = half << 4 | static_cast<std::uint64_t>(digit);
    ++digits;
  }
  return digits == 32 ? id : Uuid{};
}

Uuid boot_id() {
  static const Uuid id = read_boot_id();
  return id;
}

}  // namespace mooncake::base
