// What transports within a host ask of a peer first.
#pragma once

#include <string>

#include "transfer/transport.h"

namespace mooncake::transfer {

// Whether the peer is another process of this host; `why` says what it is instead.
inline bool is_neighbour(const Peer& peer, std::string& why) {
  if (peer.same_process) why = "it is this engine";
  if (!peer.same_process && !peer.same_host) why = "the peer is on another host";
  return !peer.same_process && peer.same_host;
}

}  // namespace mooncake::transfer
