// The tcp transport: our own framing on the engine's connections. Reaches every engine that
// listens.
#include <memory>
#include <string>
#include <vector>

#include "transfer/transport.h"
#include "transfer/transports/tcp/messages.h"
#include "transfer/transports/tcp/server.h"

namespace mooncake::transfer {
namespace tcp {
namespace {

// Loopback between two vCPUs; what a network does better or worse shifts all peers alike.
Capabilities capabilities_with(std::uint32_t lanes) {
  Capabilities capabilities;
  capabilities.name = "tcp";
  capabilities.reach = Reach::kNetwork;
  capabilities.bandwidth_bytes_per_second = 4e9;
  capabilities.latency = std::chrono::microseconds(70);
  capabilities.max_bytes_per_request = 8u << 20;
  capabilities.max_ranges_per_request = kMaxRequestRanges;
  capabilities.guarded_memory = true;
  capabilities.lanes = lanes;
  return capabilities;
}

void set_codes(std::span<Slice> slices, Code code) {
  for (Slice& slice : slices)
    slice.code = code;
}

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TransportContext& context)
      : context_(context), capabilities_(capabilities_with(context.lanes)), server_(context) {}

  const Capabilities& capabilities() const override { return capabilities_; }
  bool reaches(const Peer& peer, std::string& why) const override {
    if (peer.address.port != 0) return true;
    why = "the peer has no address";
    return false;
  }
  Task<Result<void>> execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                             std::span<Slice> slices, TimePoint deadline,
                             os::CancelToken* cancel) override;
  Task<Result<void>> fence(const Peer& peer, AttemptId id, TimePoint deadline,
                           os::CancelToken* cancel) override;
  Task<void> stop() override { co_return; }

 private:
  const TransportContext context_;
  const Capabilities capabilities_;
  TcpServer server_;
};

Task<Result<void>> TcpTransport::execute(const Peer& peer, AttemptId id, std::uint32_t lane,
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
  net::RpcClient& client = context_.peers.data(peer.address, lane);
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

Task<Result<void>> TcpTransport::fence(const Peer& peer, AttemptId id, TimePoint deadline,
                                       os::CancelToken* cancel) {
  const net::Bytes body = encode_fence(id, peer.incarnation);
  net::CallOptions options;
  options.deadline = deadline;
  options.cancel = cancel;
  // Not the connection whose data is in question: that one may be stuck.
  net::RpcClient& client = context_.peers.control(peer.address);
  const auto reply = co_await client.call(net::Method::kFence, body, options);
  if (!reply) co_return fail(reply.error());
  co_return Result<void>();
}

std::unique_ptr<Transport> create(const TransportContext& context) {
  return std::make_unique<TcpTransport>(context);
}

}  // namespace
}  // namespace tcp

const TransportEntry& tcp_transport_entry() {
  static const TransportEntry entry{"tcp", &tcp::create};
  return entry;
}

}  // namespace mooncake::transfer
