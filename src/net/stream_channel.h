// Channels over streams of bytes. For the networks that make them.
#pragma once

#include <memory>

#include "net/byte_stream.h"
#include "net/channel.h"
#include "net/reactor.h"

namespace mooncake::net {

std::unique_ptr<Channel> make_stream_channel(Reactor& reactor, std::unique_ptr<ByteStream> stream,
                                             PeerInfo peer);

}  // namespace mooncake::net
