// The ring transport: the frames of tcp through rings of shared memory, to peers on this host. For
// small writes that their owner must see: no system call where both sides look.
#include <memory>

#include "net/network.h"
#include "transfer/transports/tcp/host_stream.h"

namespace mooncake::transfer {
namespace tcp {
namespace {

std::unique_ptr<Transport> create_ring(const TransportContext& context) {
  Capabilities capabilities = stream_capabilities(context);
  capabilities.name = "ring";
  capabilities.reach = Reach::kHost;
  capabilities.bandwidth_bytes_per_second = 4e9;  // copied twice, on two cores
  capabilities.latency = std::chrono::microseconds(20);
  capabilities.lanes = 1;
  return std::make_unique<HostStreamTransport>(context, capabilities, net::kRingScheme);
}

}  // namespace
}  // namespace tcp

const TransportEntry& ring_transport_entry() {
  static const TransportEntry entry{"ring", &tcp::create_ring};
  return entry;
}

}  // namespace mooncake::transfer
