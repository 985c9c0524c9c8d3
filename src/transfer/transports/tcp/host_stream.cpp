#include "transfer/transports/tcp/host_stream.h"

#include <fmt/format.h>

#include <utility>

#include "transfer/transports/this_host.h"

namespace mooncake::transfer::tcp {

namespace {

constexpr base::Duration kTryAgainAfter = std::chrono::seconds(5);

}  // namespace

HostStreamTransport::HostStreamTransport(const TransportContext& context,
                                         const Capabilities& capabilities, std::string_view scheme)
    : StreamTransport(context, capabilities), scheme_(scheme) {
  if (!context.identity.boot_id.valid()) {
    missing_ = "the kernel does not say which boot this is";
  } else if (context.serves) {
    const auto listening = context.server.listen(address_of(context.identity.incarnation));
    if (!listening) missing_ = listening.error().message();
  }
}

// An abstract name: lies in no file system, and ends with its engine. The incarnation is a random
// number, so that nobody can take the name before.
net::Address HostStreamTransport::address_of(base::Incarnation incarnation) const {
  return {fmt::format("{}mooncake-data-{}-{:016x}", scheme_, capabilities().name,
                      static_cast<std::uint64_t>(incarnation)),
          0};
}

void HostStreamTransport::note_life(const Peer& peer) {
  base::Incarnation& life = lives_[peer.name];
  if (life == peer.incarnation) return;
  if (life != base::Incarnation{}) context().peers.retire(address_of(life));
  life = peer.incarnation;
}

bool HostStreamTransport::reaches(const Peer& peer, std::string& why) const {
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
Task<Result<void>> HostStreamTransport::execute(const Peer& peer, AttemptId id, std::uint32_t lane,
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

}  // namespace mooncake::transfer::tcp
