// The unix transport: the frames of tcp through a Unix socket, to peers on this host. For memory
// that processes can't copy between themselves, and cheaper than loopback.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "transfer/transports/tcp/stream_transport.h"
#include "transfer/transports/this_host.h"

namespace mooncake::transfer {
namespace tcp {
namespace {

constexpr base::Duration kTryAgainAfter = std::chrono::seconds(5);

Capabilities unix_capabilities(const TransportContext& context) {
  Capabilities capabilities = stream_capabilities(context);
  capabilities.name = "unix";
  capabilities.reach = Reach::kHost;
  capabilities.bandwidth_bytes_per_second = 4.5e9;
  capabilities.latency = std::chrono::microseconds(50);
  return capabilities;
}

// An abstract name: lies in no file system, and ends with its engine. The incarnation is a random
// number, so that nobody can take the name before.
net::Address address_of(base::Incarnation incarnation) {
  return {fmt::format("@mooncake-data-{:016x}", static_cast<std::uint64_t>(incarnation)), 0};
}

class UnixTransport final : public StreamTransport {
 public:
  explicit UnixTransport(const TransportContext& context)
      : StreamTransport(context, unix_capabilities(context)) {
    if (!context.identity.boot_id.valid()) {
      missing_ = "the kernel does not say which boot this is";
    } else if (context.serves) {
      const auto listening = context.server.listen(address_of(context.identity.incarnation));
      if (!listening) missing_ = listening.error().message();
    }
  }

  bool reaches(const Peer& peer, std::string& why) const override;
  Task<Result<void>> execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                             std::span<Slice> slices, TimePoint deadline,
                             os::CancelToken* cancel) override;
  void forget_failures(const Peer& peer) override { failed_.erase(peer.incarnation); }

 private:
  net::Address data_address(const Peer& peer) const override {
    return address_of(peer.incarnation);
  }

  struct Failure {
    TimePoint at{};
    std::string why;
  };
  // Each life of a peer has a name of its own.
  void note_life(const Peer& peer);

  std::string missing_;  // why nobody is reached; empty = nothing is missing
  std::map<base::Incarnation, Failure> failed_;
  std::map<std::string, base::Incarnation> lives_;  // by name of the peer
};

void UnixTransport::note_life(const Peer& peer) {
  base::Incarnation& life = lives_[peer.name];
  if (life == peer.incarnation) return;
  if (life != base::Incarnation{}) context().peers.retire(address_of(life));
  life = peer.incarnation;
}

bool UnixTransport::reaches(const Peer& peer, std::string& why) const {
  if (!is_neighbour(peer, why)) return false;
  const auto failure = failed_.find(peer.incarnation);
  if (!missing_.empty()) {
    why = missing_;
  } else if (failure != failed_.end() &&
             context().env.now() < failure->second.at + kTryAgainAfter) {
    why = failure->second.why;
  } else {
    return true;
  }
  return false;
}

// A peer that can't be reached so may well live: it is left to another way for a while.
Task<Result<void>> UnixTransport::execute(const Peer& peer, AttemptId id, std::uint32_t lane,
                                          std::span<Slice> slices, TimePoint deadline,
                                          os::CancelToken* cancel) {
  note_life(peer);
  auto outcome = co_await StreamTransport::execute(peer, id, lane, slices, deadline, cancel);
  if (outcome) {
    failed_.erase(peer.incarnation);
  } else if (outcome.error().code() == Code::kUnreachable) {
    const TimePoint now = context().env.now();
    std::erase_if(failed_,
                  [&](const auto& failure) { return now >= failure.second.at + kTryAgainAfter; });
    failed_[peer.incarnation] = {now, outcome.error().message()};
    outcome = fail(Code::kTransferFailed, outcome.error().message());
  }
  co_return outcome;
}

std::unique_ptr<Transport> create_unix(const TransportContext& context) {
  return std::make_unique<UnixTransport>(context);
}

}  // namespace
}  // namespace tcp

const TransportEntry& unix_transport_entry() {
  static const TransportEntry entry{"unix", &tcp::create_unix};
  return entry;
}

}  // namespace mooncake::transfer
