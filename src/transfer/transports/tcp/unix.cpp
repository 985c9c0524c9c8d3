// The unix transport: the frames of tcp through a Unix socket, to peers on this host. For memory
// that processes can't copy between themselves, and cheaper than loopback.
#include <memory>

#include "transfer/transports/tcp/host_stream.h"

namespace mooncake::transfer {
namespace tcp {
namespace {

std::unique_ptr<Transport> create_unix(const TransportContext& context) {
  Capabilities capabilities = stream_capabilities(context);
  capabilities.name = "unix";
  capabilities.reach = Reach::kHost;
  capabilities.bandwidth_bytes_per_second = 4.5e9;
  capabilities.latency = std::chrono::microseconds(50);
  return std::make_unique<HostStreamTransport>(context, capabilities, "@");
}

}  // namespace
}  // namespace tcp

const TransportEntry& unix_transport_entry() {
  static const TransportEntry entry{"unix", &tcp::create_unix};
  return entry;
}

}  // namespace mooncake::transfer
