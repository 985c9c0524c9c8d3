#include "net/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace mooncake::net {
namespace {

constexpr std::size_t kMaxName = 253;  // of DNS
constexpr std::size_t kMaxScope = 15;  // of a network interface
constexpr std::size_t kMaxText = 320;  // longest sensible address, with room

tl::unexpected<Error> bad(std::string_view text, std::string_view why) {
  return fail(Code::kInvalidArgument, "address " + base::quote(text) + ": " + std::string(why) +
                                          "; expected host:port or [ipv6]:port");
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

bool is_name(std::string_view text) { return std::ranges::all_of(text, is_name_char); }

bool is_ipv6(std::string_view text) {
  const std::size_t percent = text.find('%');
  if (percent != std::string_view::npos) {
    const std::string_view scope = text.substr(percent + 1);
    if (scope.empty() || scope.size() > kMaxScope || !is_name(scope)) return false;
    text = text.substr(0, percent);
  }
  constexpr std::string_view kAllowed = "0123456789abcdefABCDEF:.";
  if (text.size() >= INET6_ADDRSTRLEN) return false;
  if (text.find_first_not_of(kAllowed) != std::string_view::npos) return false;
  in6_addr parsed;
  return ::inet_pton(AF_INET6, std::string(text).c_str(), &parsed) == 1;
}

struct Parts {
  std::string_view host;
  std::string_view port;
  bool has_port = false;
  bool is_ipv6 = false;
};

// Where the host ends; the parts themselves are not checked yet.
Parts split(std::string_view text) {
  std::size_t colon = std::string_view::npos;
  Parts parts;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    parts.is_ipv6 = true;
    if (end == std::string_view::npos) return parts;  // an empty host
    parts.host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (rest.empty()) return parts;
    if (rest.front() != ':') return {.host = {}, .port = {}, .has_port = false, .is_ipv6 = true};
    colon = end + 1;
  } else if (const std::size_t percent = text.find('%'); percent != std::string_view::npos) {
    // A scope has no colon, so what follows one is a port.
    colon = text.find(':', percent);
    parts.host = text.substr(0, colon);
    parts.is_ipv6 = true;
  } else if (std::ranges::count(text, ':') > 1) {
    parts.host = text;  // a bare literal: there is no telling where a port would begin
    parts.is_ipv6 = true;
  } else {
    colon = text.find(':');
    parts.host = text.substr(0, colon);
  }
  if (colon != std::string_view::npos) {
    parts.has_port = true;
    parts.port = text.substr(colon + 1);
  }
  return parts;
}

}  // namespace

Result<Address> parse_address(std::string_view text, std::uint16_t default_port) {
  if (text.empty()) return bad(text, "is empty");
  if (text.size() > kMaxText) return bad(text, "is too long");
  const Parts parts = split(text);
  if (parts.is_ipv6) {
    if (!is_ipv6(parts.host)) return bad(text, "no valid IPv6 address");
  } else {
    if (parts.host.empty()) return bad(text, "has no host");
    if (parts.host.size() > kMaxName) return bad(text, "the host is too long");
    if (!is_name(parts.host)) return bad(text, "a character that no host has");
  }
  Address address(std::string(parts.host), default_port);
  if (!parts.has_port) {
    if (default_port == 0) return bad(text, "has no port");
    return address;
  }
  const char* const end = parts.port.data() + parts.port.size();
  const auto [stop, error] = std::from_chars(parts.port.data(), end, address.port);
  if (error != std::errc() || stop != end) {
    return bad(text, "the port is not a number from 0 to 65535");
  }
  return address;
}

std::string to_string(const Address& address) {
  const bool is_literal = address.host.find(':') != std::string::npos;
  return (is_literal ? "[" + address.host + "]" : address.host) + ":" +
         std::to_string(address.port);
}

}  // namespace mooncake::net
