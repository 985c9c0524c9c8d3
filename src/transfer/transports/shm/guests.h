// Guests: the processes of this host that stand at the gate. Only they may have writes and pins
// open here, and what each has open is bounded, and ends with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "base/ids.h"
#include "mooncake/result.h"
#include "net/handshake.h"
#include "net/rpc.h"
#include "transfer/transport.h"

namespace mooncake::transfer::shm {

// One session. A secret between its two processes: an engine's incarnation is known to whoever has
// spoken with it, so that it proves nothing about who asks. Stands in AttemptId::engine.
enum class GuestId : std::uint64_t {};

// Executor thread only, as all here.
class Guests {
 public:
  explicit Guests(const net::Identity& host) : host_(host) {}
  Guests(const Guests&) = delete;
  Guests& operator=(const Guests&) = delete;

  // A process of this engine has been let in.
  GuestId admit(base::Incarnation engine);
  void dismiss(GuestId guest) { engines_.erase(guest); }
  // How many of one engine there are.
  std::size_t of(base::Incarnation engine) const;

  // Whose attempt it is; the call comes from this host and its engine, and means this life of ours.
  // kNotSupported when no such guest is here.
  Result<GuestId> guest_of(const net::ServerCall& call, const AttemptId& attempt,
                           base::Incarnation receiver) const;

 private:
  const net::Identity& host_;
  std::map<GuestId, base::Incarnation> engines_;
};

// An attempt among those of all guests, in order of guests.
using AttemptKey = std::tuple<GuestId, std::uint64_t, std::uint32_t, std::uint32_t>;
inline AttemptKey key_of(GuestId guest, const AttemptId& id) {
  return {guest, id.batch, id.slice, id.attempt};
}
inline AttemptKey first_key_of(GuestId guest) { return {guest, 0, 0, 0}; }
inline GuestId guest_of(const AttemptKey& key) { return std::get<0>(key); }

// Ranges that guests have open, of one kind.
class OpenRanges {
 public:
  OpenRanges(std::size_t most, std::size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}

  // False, and nothing is taken, when there would be too many.
  bool take(GuestId guest, std::size_t ranges);
  void give_back(GuestId guest, std::size_t ranges);

 private:
  const std::size_t most_, most_of_one_;
  std::size_t all_ = 0;
  std::map<GuestId, std::size_t> of_;
};

}  // namespace mooncake::transfer::shm
