// Network interfaces of this machine, and which one leads where.
#pragma once

#include <string>

#include "mooncake/result.h"
#include "net/address.h"

namespace mooncake::net {

// The first IPv4 address of the interface that is called `name`, as in "eth0". kInvalidArgument
// says which interfaces have one.
Result<std::string> interface_address(const std::string& name);

// The address of this machine by which it reaches `peer`, as the routing table says; nothing is
// sent. kUnreachable when no way leads there.
Result<std::string> address_towards(const Address& peer);

}  // namespace mooncake::net
