// The network of this machine: sockets, and rings between processes of one host. For runtime.cpp.
#pragma once

#include <memory>

#include "net/channel.h"
#include "net/network.h"
#include "net/reactor.h"

namespace mooncake::net {

// Takes `fd`, a connected stream socket of the address family `family`. kSystemCall.
Result<std::unique_ptr<Channel>> make_socket_channel(Reactor& reactor, int fd, int family,
                                                     PeerInfo peer);

// Must not outlive the reactor.
std::unique_ptr<Network> make_socket_network(Reactor& reactor);

}  // namespace mooncake::net
