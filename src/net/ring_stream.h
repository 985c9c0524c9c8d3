// Streams of two rings of shared memory, between processes of one host: while both sides look,
// bytes pass without a system call. A Unix socket between them is the bell for who sleeps, and
// tells when the other side has gone.
#pragma once

#include <memory>

#include "net/byte_stream.h"
#include "net/reactor.h"
#include "net/ring_quota.h"
#include "os/local_socket.h"

namespace mooncake::net {

// Makes the rings, and hands them to the other side in the first message on `bell`. kSystemCall.
Result<std::unique_ptr<ByteStream>> offer_rings(Reactor& reactor, os::LocalSocket bell);
// Takes that message. kProtocolError when it is none, or the rings are of another version. The
// stream holds `place` until it is closed.
Result<std::unique_ptr<ByteStream>> take_rings(Reactor& reactor, os::LocalSocket bell,
                                               const os::LocalSocket::Message& offer,
                                               RingQuota::Place place);

}  // namespace mooncake::net
