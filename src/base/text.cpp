#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace mooncake::base {

namespace {

constexpr std::size_t kMaxQuoted = 100;
constexpr std::size_t kMaxCompared = 100;

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

bool is_continuation(std::uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the character that a not empty text begins with; 0 when they are no UTF-8.
std::size_t utf8_length(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead < 0xC2   ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte_at(text, i))) return 0;
  }
  // Written longer than need be, a surrogate, or above U+10FFFF.
  const std::uint8_t second = byte_at(text, 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0)) return 0;
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90)) return 0;
  return length;
}

// Whether the character that the text begins with is a control: C0, DEL or C1.
bool begins_with_control(std::string_view text) {
  const std::uint8_t first = byte_at(text, 0);
  if (first < 0x20 || first == 0x7F) return true;
  return first == 0xC2 && text.size() > 1 && byte_at(text, 1) < 0xA0;
}

void append_escaped(std::string& result, std::uint8_t byte) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (byte) {
    case '\n':
      result += "\\n";
      break;
    case '\t':
      result += "\\t";
      break;
    case '\r':
      result += "\\r";
      break;
    default:
      result += "\\x";
      result += kHex[byte >> 4];
      result += kHex[byte & 15];
  }
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Two neighbours that have changed places are one edit.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1), above, above_that;
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    above_that = std::exchange(above, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = above[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({row[j] + 1, above[j + 1] + 1, replaced});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], above_that[j - 1] + 1);
      }
    }
  }
  return row[b.size()];
}

// Near enough to be what was meant: a third of its letters at most are wrong, or the rest is left
// out.
bool is_near(std::string_view word, std::string_view candidate, std::size_t distance) {
  constexpr std::size_t kShortestPrefix = 3;
  if (word.size() >= kShortestPrefix && candidate.starts_with(word)) return true;
  return distance * 3 <= std::max(word.size(), candidate.size());
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string to_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string escape(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const bool harmless = length > 0 && !begins_with_control(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    if (harmless) result += character;
    for (std::size_t i = 0; !harmless && i < character.size(); ++i)
      append_escaped(result, byte_at(character, i));
    text.remove_prefix(character.size());
  }
  return result;
}

std::string quote(std::string_view text) {
  std::string result = "'" + escape(utf8_prefix(text, kMaxQuoted));
  result += text.size() > kMaxQuoted ? "...'" : "'";
  return result;
}

std::string_view utf8_prefix(std::string_view text, std::size_t size) {
  if (text.size() <= size) return text;
  constexpr std::size_t kMaxBack = 3;
  for (std::size_t back = 0; back <= std::min(size, kMaxBack); ++back) {
    if (!is_continuation(byte_at(text, size - back))) return text.substr(0, size - back);
  }
  return text.substr(0, size);
}

std::string to_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    result += length > 0 ? text.substr(0, length) : "\xEF\xBF\xBD";
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string name_fault(std::string_view name, std::size_t max_length) {
  if (name.empty()) return "is empty";
  if (name.size() > max_length) {
    return fmt::format("is {} bytes long, at most {} are allowed", name.size(), max_length);
  }
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    if (length == 0) return "is not UTF-8";
    if (begins_with_control(rest)) return "holds a control character";
    rest.remove_prefix(length);
  }
  return {};
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  word = word.substr(0, kMaxCompared);
  std::string_view best;
  std::size_t best_distance = 0;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate.substr(0, kMaxCompared));
    if (best.data() == nullptr || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return is_near(word, best, best_distance) ? best : std::string_view();
}

}  // namespace mooncake::base
