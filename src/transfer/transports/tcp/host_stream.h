// HostStreamTransport: the frames of tcp through other streams, to peers on this host: each engine
// listens under an abstract name of its own.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "transfer/transports/tcp/stream_transport.h"

namespace mooncake::transfer::tcp {

class HostStreamTransport final : public StreamTransport {
 public:
  // `scheme`: of the addresses, which the network understands (net/network.h).
  HostStreamTransport(const TransportContext& context, const Capabilities& capabilities,
                      std::string_view scheme);

  bool reaches(const Peer& peer, std::string& why) const override;
  Task<Result<void>> execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                             std::span<Slice> slices, TimePoint deadline,
                             os::CancelToken* cancel) override;
  void forget_failures(const Peer& peer) override { failed_.erase(peer.incarnation); }

 private:
  net::Address address_of(base::Incarnation incarnation) const;
  net::Address data_address(const Peer& peer) const override {
    return address_of(peer.incarnation);
  }

  struct Failure {
    TimePoint at{};
    std::string why;
  };
  // Each life of a peer has a name of its own.
  void note_life(const Peer& peer);

  const std::string_view scheme_;
  std::string missing_;  // why nobody is reached; empty = nothing is missing
  std::map<base::Incarnation, Failure> failed_;
  std::map<std::string, base::Incarnation> lives_;  // by name of the peer
};

}  // namespace mooncake::transfer::tcp
