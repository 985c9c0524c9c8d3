// The tcp transport: our own framing on the engine's connections. Reaches every engine that
// listens.
#include <memory>
#include <string>

#include "transfer/transports/tcp/server.h"
#include "transfer/transports/tcp/stream_transport.h"

namespace mooncake::transfer {
namespace tcp {
namespace {

// Loopback between two vCPUs; what a network does better or worse shifts all peers alike.
Capabilities tcp_capabilities(const TransportContext& context) {
  Capabilities capabilities = stream_capabilities(context);
  capabilities.name = "tcp";
  capabilities.reach = Reach::kNetwork;
  capabilities.bandwidth_bytes_per_second = 4e9;
  capabilities.latency = std::chrono::microseconds(70);
  return capabilities;
}

class TcpTransport final : public StreamTransport {
 public:
  explicit TcpTransport(const TransportContext& context)
      : StreamTransport(context, tcp_capabilities(context)), server_(context) {}

  bool reaches(const Peer& peer, std::string& why) const override {
    if (peer.address.port != 0) return true;
    why = "the peer has no address";
    return false;
  }

 private:
  net::Address data_address(const Peer& peer) const override { return peer.address; }

  TcpServer server_;  // of the requests of all connections
};

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
