// Network: makes channels. Sockets in production (net/runtime.h), simulated in tests
// (net/sim_network.h).
#pragma once

#include <memory>
#include <string_view>

#include "base/clock.h"
#include "net/address.h"
#include "net/channel.h"

namespace mooncake::net {

class RingQuota;

// Executor thread only, as all of Network.
class Listener {
 public:
  virtual ~Listener() = default;
  // The next connection. After close(): kCancelled. kBusy: it waits, but there is no descriptor
  // for it; ask again when there may be one.
  virtual Task<Result<std::unique_ptr<Channel>>> accept() = 0;
  // With the port that was really bound.
  virtual const Address& address() const = 0;
  virtual void close() = 0;
  // Before the first accept(). Connections through rings beyond it are not taken.
  virtual void set_ring_quota(std::shared_ptr<RingQuota>) {}
};

// A host that begins so names a server of this host that is reached through rings of shared memory.
inline constexpr std::string_view kRingScheme = "ring:";
inline bool is_ring(const Address& address) { return address.host.starts_with(kRingScheme); }

class Network {
 public:
  virtual ~Network() = default;
  // kUnreachable or kDeadlineExceeded; the detail names the address.
  virtual Task<Result<std::unique_ptr<Channel>>> connect(Address to, base::TimePoint deadline) = 0;
  // Port 0 picks a free one. kAddressInUse names the address; kNotSupported when it is of a kind
  // that this network does not have.
  virtual Result<std::unique_ptr<Listener>> listen(const Address& at) = 0;
};

}  // namespace mooncake::net
