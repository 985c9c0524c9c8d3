// Any file is refused with words that name it, or is a flat map; written as JSON that map is read
// back as the same. The first byte chooses YAML or JSON.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "mooncake/config.h"

namespace {

void append_quoted(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

// JSON takes UTF-8 only; what YAML lets through as bytes can't be compared.
bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view content(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto values = mooncake::parse_config_file(data[0] % 2 == 0 ? "f.yaml" : "f.json", content);
  if (!values) {
    if (values.error().detail().find("f.") == std::string_view::npos) std::abort();
    return 0;
  }
  std::string json = "{";
  for (const auto& [key, value] : *values) {
    if (!is_ascii(key) || !is_ascii(value)) return 0;
    if (json.size() > 1) json += ',';
    append_quoted(json, key);
    json += ':';
    append_quoted(json, value);
  }
  json += '}';
  if (json.size() > std::size_t{1} << 20) return 0;
  const auto again = mooncake::parse_config_file("f.json", json);
  if (!again || *again != *values) std::abort();
  return 0;
}
