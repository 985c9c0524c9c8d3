// Network interfaces of this machine.
#pragma once

#include <string>

#include "mooncake/result.h"

namespace mooncake::net {

// The first IPv4 address of the interface that is called `name`, as in "eth0". kInvalidArgument
// says which interfaces have one.
Result<std::string> interface_address(const std::string& name);

}  // namespace mooncake::net
