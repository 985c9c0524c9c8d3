// HostPins: the owner's side of extents that other processes of this host look at where they lie.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <vector>

#include "memory/pinned_ranges.h"
#include "net/rpc.h"
#include "transfer/transport.h"
#include "transfer/transports/shm/guests.h"

namespace mooncake::transfer::shm {

// Executor thread only. All input is hostile. Pins end when their guest says so, or has gone; never
// by time, since a reader that stands still may go on to read.
class HostPins {
 public:
  // `guests` outlives it.
  HostPins(const TransportContext& context, const Guests& guests);
  HostPins(const HostPins&) = delete;
  HostPins& operator=(const HostPins&) = delete;

  // The guest has gone: all that it has pinned is free.
  void end_all(GuestId guest);

  static constexpr std::size_t kMost = 1u << 15;         // ranges pinned at once
  static constexpr std::size_t kMostOfGuest = 1u << 12;  // of one guest

 private:
  using Pins = std::vector<memory::PinnedRanges::Pin>;

  Result<net::Bytes> pin(const net::ServerCall& call);
  Result<net::Bytes> unpin(const net::ServerCall& call);

  const TransportContext context_;
  const Guests& guests_;
  OpenRanges ranges_{kMost, kMostOfGuest};
  std::map<AttemptKey, Pins> pins_;
  std::deque<AttemptKey> ended_early_;  // unpinned before they came, the youngest last
};

}  // namespace mooncake::transfer::shm
