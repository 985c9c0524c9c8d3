#include "transfer/transports/tcp/stream_transport.h"

#include <utility>
#include <vector>

#include "transfer/requests.h"

namespace mooncake::transfer::tcp {

namespace {

void set_codes(std::span<Slice> slices, Code code) {
  for (Slice& slice : slices)
    slice.code = code;
}

}  // namespace

Capabilities stream_capabilities(const TransportContext& context) {
  Capabilities capabilities;
  capabilities.max_bytes_per_request = 8u << 20;
  capabilities.max_ranges_per_request = kMaxRequestRanges;
  capabilities.guarded_reads = capabilities.guarded_writes = true;
  capabilities.lanes = context.lanes;
  return capabilities;
}

Task<Result<void>> StreamTransport::execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                                            std::span<Slice> slices, TimePoint deadline,
                                            os::CancelToken* cancel) {
  const bool write = slices.front().opcode == Opcode::kWrite;
  std::vector<base::ConstBuffer> data;
  std::vector<base::MutableBuffer> room;
  std::uint64_t bytes = 0;
  for (const Slice& slice : slices) {
    bytes += slice.length;
    if (write) {
      data.insert(data.end(), slice.local.begin(), slice.local.end());
    } else {
      room.insert(room.end(), slice.local.begin(), slice.local.end());
    }
  }
  const net::Bytes body = write ? encode_write(id, peer.incarnation, slices)
                                : encode_read(id, peer.incarnation, slices);
  net::CallOptions options;
  options.deadline = deadline;
  options.cancel = cancel;
  options.data = data;
  options.data_room = room;
  net::RpcClient& client = context_.peers.data(data_address(peer), lane);
  auto reply =
      co_await client.call(write ? net::Method::kWrite : net::Method::kRead, body, options);
  Result<void> outcome;
  if (!reply) {
    outcome = fail(std::move(reply).error());
  } else if (!write && reply->data_bytes != bytes) {
    outcome = fail(Code::kProtocolError, peer.name + " sent other data than it was asked for");
  } else {
    outcome = apply_codes(reply->body, slices);
  }
  if (!outcome) set_codes(slices, outcome.error().code());
  co_return outcome;
}

Task<Result<void>> StreamTransport::fence(const Peer& peer, AttemptId id, TimePoint deadline,
                                          os::CancelToken* cancel) {
  const net::Bytes body = encode_fence(id, peer.incarnation);
  net::CallOptions options;
  options.deadline = deadline;
  options.cancel = cancel;
  net::RpcClient& client = context_.peers.control(peer.address);
  const auto reply = co_await client.call(net::Method::kFence, body, options);
  if (!reply) co_return fail(reply.error());
  co_return Result<void>();
}

}  // namespace mooncake::transfer::tcp
