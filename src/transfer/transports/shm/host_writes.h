// HostWrites: the owner's side of guarded writes whose bytes another process of this host copies by
// itself. The owner turns the words: before the first byte, and after the last one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "memory/gate.h"
#include "net/rpc.h"
#include "os/executor.h"
#include "transfer/access.h"
#include "transfer/requests.h"
#include "transfer/transport.h"

namespace mooncake::transfer::shm {

// Executor thread only. All input is hostile. What one peer has open is bounded, and ends with it.
class HostWrites {
 public:
  HostWrites(const TransportContext& context, std::shared_ptr<memory::Gate> gate);
  ~HostWrites();
  HostWrites(const HostWrites&) = delete;
  HostWrites& operator=(const HostWrites&) = delete;

  // A process of this engine has been let in at the gate; only such engines may write.
  void admit(base::Incarnation peer);
  // It has gone, and its slots with it. With its last process all that it has open ends.
  void dismiss(base::Incarnation peer);

 private:
  class Writer;
  struct Open {
    std::shared_ptr<Writer> writer;
    std::vector<WriteAccess> accesses;
    os::TimerId end = os::TimerId::kNone;
  };
  struct Peer {
    std::size_t processes = 0;
    std::size_t ranges = 0;  // open
  };
  using Key = std::tuple<base::Incarnation, std::uint64_t, std::uint32_t, std::uint32_t>;
  static Key key_of(const AttemptId& id) { return {id.engine, id.batch, id.slice, id.attempt}; }

  Open close(std::map<Key, Open>::iterator place);
  Result<net::Bytes> begin(const net::ServerCall& call);
  Result<net::Bytes> end(const net::ServerCall& call);
  Result<void> check_parties(const net::ServerCall& call, const AttemptId& attempt,
                             base::Incarnation receiver) const;

  const TransportContext context_;
  const std::shared_ptr<memory::Gate> gate_;
  std::map<base::Incarnation, Peer> peers_;
  std::map<Key, Open> open_;
  std::size_t ranges_ = 0;  // open, of all peers
};

}  // namespace mooncake::transfer::shm
