// Small text helpers of parsers and of messages that quote what a user or a peer has sent.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mooncake::base {

// Without the blanks, tabs and line ends at both ends.
std::string_view trim(std::string_view text);
// ASCII only.
std::string to_lower(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);
// Control characters as \n, \t or \x1b: safe in one line of a log or of a message.
std::string escape(std::string_view text);
// 'text', escaped and cut after 100 bytes.
std::string quote(std::string_view text);
// The candidate with the fewest edits to `word`, the first of equals; empty when there is none.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace mooncake::base
