// Connections through rings, by the name of an abstract Unix socket. For socket_network.cpp.
#pragma once

#include <memory>

#include "net/network.h"
#include "net/reactor.h"

namespace mooncake::net {

// Done at once. kUnreachable when nobody listens under the name here, or another user does.
Result<std::unique_ptr<Channel>> connect_rings(Reactor& reactor, const Address& to);
// Takes connections of processes of the same user.
Result<std::unique_ptr<Listener>> listen_rings(Reactor& reactor, const Address& at);

}  // namespace mooncake::net
