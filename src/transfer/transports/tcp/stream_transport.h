// StreamTransport: our framing over a connection to the peer; which one, says the leaf.
#pragma once

#include "transfer/transport.h"

namespace mooncake::transfer::tcp {

class StreamTransport : public Transport {
 public:
  StreamTransport(const TransportContext& context, const Capabilities& capabilities)
      : context_(context), capabilities_(capabilities) {}

  const Capabilities& capabilities() const override { return capabilities_; }
  Task<Result<void>> execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                             std::span<Slice> slices, TimePoint deadline,
                             os::CancelToken* cancel) override;
  // Through the connection for questions: the one whose data is in question may be stuck.
  Task<Result<void>> fence(const Peer& peer, AttemptId id, TimePoint deadline,
                           os::CancelToken* cancel) override;
  Task<void> stop() override { co_return; }

 protected:
  // Where the peer takes connections for data.
  virtual net::Address data_address(const Peer& peer) const = 0;
  const TransportContext& context() const { return context_; }

 private:
  const TransportContext context_;
  const Capabilities capabilities_;
};

// Of any connection, but for its speed.
Capabilities stream_capabilities(const TransportContext& context);

}  // namespace mooncake::transfer::tcp
