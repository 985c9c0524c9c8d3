// Small text helpers of parsers and of messages that quote what a user or a peer has sent.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace mooncake::base {

// Without the blanks, tabs and line ends at both ends.
std::string_view trim(std::string_view text);
// ASCII only.
std::string to_lower(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);
// Control characters, and bytes that are not UTF-8, as \n, \t or \x1b: safe in one line of a log or
// of a message.
std::string escape(std::string_view text);
// 'text', escaped and cut after 100 bytes.
std::string quote(std::string_view text);
// At most `size` bytes from the start, without half of a character at the end.
std::string_view utf8_prefix(std::string_view text, std::size_t size);
// Each byte that belongs to no UTF-8 character replaced by U+FFFD.
std::string to_utf8(std::string_view text);
// Why `name` is none that may be shown to people and to their tools, as in "is empty"; empty when
// it is one: 1 to `max_length` bytes of UTF-8 without control characters.
std::string name_fault(std::string_view name, std::size_t max_length);
// The candidate with the fewest edits to `word`, the first of equals; empty when none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace mooncake::base
