// Where a peer listens.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "mooncake/result.h"

namespace mooncake::net {

struct Address {
  // Name or literal, IPv6 without brackets, scope kept ("fe80::1%eth0"). "@name": a Unix socket
  // of this host, without a port; our own choice alone, parse_address() never gives one.
  std::string host;
  std::uint16_t port = 0;

  // Constructors, since GCC 12 destroys aggregates twice when they are temporaries in a co_await.
  Address() = default;
  Address(std::string host_, std::uint16_t port_) : host(std::move(host_)), port(port_) {}
  auto operator<=>(const Address&) const = default;
};

// "host:port", "[v6]:port", "host", "[v6]", "v6%scope:port". A missing port takes `default_port`;
// with 0 there it is an error. Port 0 may be named: who listens there gets a free one. An IPv6
// address without brackets and scope is all address: "fe80::1:8080" has no port. kInvalidArgument
// names the value. The one address parser of the product; fuzzed.
Result<Address> parse_address(std::string_view text, std::uint16_t default_port);
// IPv6 in brackets.
std::string to_string(const Address& address);

}  // namespace mooncake::net
