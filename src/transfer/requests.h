// Requests of one engine to another: bodies of kWrite, kRead, kFence and others (transfer.fbs),
// checked when read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/ids.h"
#include "mooncake/result.h"
#include "net/rpc.h"
#include "transfer/access.h"
#include "transfer/transport.h"

namespace mooncake::transfer {

// Limits of one request, of both sides.
inline constexpr std::uint64_t kMaxRequestBytes = 64u << 20;
inline constexpr std::size_t kMaxRequestRanges = 2048;
inline constexpr std::uint32_t kWholeBatch = 0xffffffff;

net::Bytes encode_write(AttemptId id, base::Incarnation receiver, std::span<const Slice> slices);
net::Bytes encode_read(AttemptId id, base::Incarnation receiver, std::span<const Slice> slices);
net::Bytes encode_fence(AttemptId id, base::Incarnation receiver);
net::Bytes encode_codes(std::span<const Code> codes);
net::Bytes encode_begun(std::span<const Code> codes, memory::Pass pass);
net::Bytes encode_end(AttemptId id, base::Incarnation receiver, const std::vector<bool>& arrived);
net::Bytes encode_fenced();

// Sets the slices' codes; kProtocolError when the reply doesn't fit.
Result<void> apply_codes(base::ConstBuffer reply, std::span<Slice> slices);

// The same; which pass a write may be copied under.
Result<memory::Pass> apply_begun(base::ConstBuffer reply, std::span<Slice> slices);

// A request as its receiver reads it. `keys` point into the body.
struct TransferMessage {
  AttemptId attempt;
  base::Incarnation receiver{};
  std::vector<RemoteRange> ranges;
  std::uint64_t bytes = 0;                    // of all ranges
  std::vector<memory::ExtentRecord> records;  // of guarded ranges, in order
  std::vector<std::string_view> keys;         // one for each record
};
// kProtocolError for what is malformed, kInvalidArgument for what is over a limit, wraps around or
// contradicts itself.
Result<TransferMessage> decode_write(base::ConstBuffer body);
Result<TransferMessage> decode_read(base::ConstBuffer body);
// A kRead's body that asks for no bytes to be sent: they may be any number.
Result<TransferMessage> decode_pin(base::ConstBuffer body);

struct EndMessage {
  AttemptId attempt;
  base::Incarnation receiver{};
  std::vector<bool> arrived;
};
Result<EndMessage> decode_end(base::ConstBuffer body);

struct FenceMessage {
  AttemptId attempt;  // attempts of this batch and slice up to `attempt`
  base::Incarnation receiver{};
};
Result<FenceMessage> decode_fence(base::ConstBuffer body);

}  // namespace mooncake::transfer
