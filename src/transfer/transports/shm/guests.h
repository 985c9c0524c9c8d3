// Guests: the engines of this host whose processes stand at the gate. Only they may have writes and
// pins open here, and what each has open is bounded, and ends with its last process.
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

// Executor thread only, as all here.
class Guests {
 public:
  explicit Guests(const net::Identity& host) : host_(host) {}
  Guests(const Guests&) = delete;
  Guests& operator=(const Guests&) = delete;

  // A process of this engine has been let in.
  void admit(base::Incarnation peer) { ++processes_[peer]; }
  // One has gone, and its slots with it. True when it was the engine's last.
  bool dismiss(base::Incarnation peer);
  bool has(base::Incarnation peer) const { return processes_.contains(peer); }

  // Whether the call comes from this host, speaks of an attempt of its own, and means this life of
  // this engine.
  Result<void> check_parties(const net::ServerCall& call, const AttemptId& attempt,
                             base::Incarnation receiver) const;

 private:
  const net::Identity& host_;
  std::map<base::Incarnation, std::size_t> processes_;
};

// An attempt among those of all guests, in order of engines.
using AttemptKey = std::tuple<base::Incarnation, std::uint64_t, std::uint32_t, std::uint32_t>;
inline AttemptKey key_of(const AttemptId& id) {
  return {id.engine, id.batch, id.slice, id.attempt};
}
inline AttemptKey first_key_of(base::Incarnation peer) { return {peer, 0, 0, 0}; }
inline base::Incarnation engine_of(const AttemptKey& key) { return std::get<0>(key); }

// Ranges that guests have open, of one kind.
class OpenRanges {
 public:
  OpenRanges(std::size_t most, std::size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}

  // False, and nothing is taken, when there would be too many.
  bool take(base::Incarnation peer, std::size_t ranges);
  void give_back(base::Incarnation peer, std::size_t ranges);

 private:
  const std::size_t most_, most_of_one_;
  std::size_t all_ = 0;
  std::map<base::Incarnation, std::size_t> of_;
};

}  // namespace mooncake::transfer::shm
