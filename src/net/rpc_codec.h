// What handshake, RPC server and client do alike: bodies and errors on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "mooncake/result.h"
#include "net/channel.h"
#include "net/rpc.h"

namespace mooncake::net {

// An ErrorReply (net/common.fbs); of the detail at most 1 KiB.
Bytes encode_error(const Error& error);
// Never kOk: whoever sends that as an error gets kInternal. kProtocolError when it is no
// ErrorReply.
Error decode_error(base::ConstBuffer body);

// Takes a body of `size` bytes, whose header has been checked. Memory is touched as bytes arrive,
// so that a peer pays for what it makes us hold. kOutOfMemory and the channel's errors.
Task<Result<Bytes>> receive_body(Channel& channel, std::size_t size);
Task<Result<void>> discard_payload(Channel& channel, PayloadSink& sink, std::size_t size);

// Time left until `deadline` as the header says it: at least 1, since 0 means expired.
std::uint32_t remaining_us(base::TimePoint now, base::TimePoint deadline);

// Payloads up to this size are copied into the queue, so that they leave with their message in one
// system call; larger ones are taken from their place.
inline constexpr std::size_t kCopiedData = 64u << 10;

}  // namespace mooncake::net
