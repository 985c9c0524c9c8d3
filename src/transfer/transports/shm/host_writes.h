// HostWrites: the owner's side of guarded writes whose bytes another process of this host copies by
// itself. The owner turns the words: before the first byte, and after the last one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "memory/gate.h"
#include "net/rpc.h"
#include "os/executor.h"
#include "transfer/access.h"
#include "transfer/requests.h"
#include "transfer/transport.h"
#include "transfer/transports/shm/guests.h"

namespace mooncake::transfer::shm {

// Executor thread only. All input is hostile. What one peer has open is bounded, and ends with it.
class HostWrites {
 public:
  // `guests` outlives it.
  HostWrites(const TransportContext& context, std::shared_ptr<memory::Gate> gate,
             const Guests& guests);
  ~HostWrites();
  HostWrites(const HostWrites&) = delete;
  HostWrites& operator=(const HostWrites&) = delete;

  // The guest has gone: all that it has open ends.
  void end_all(GuestId guest);

 private:
  class Writer;
  struct Open {
    std::shared_ptr<Writer> writer;
    std::vector<WriteAccess> accesses;
    os::TimerId end = os::TimerId::kNone;
  };

  Open close(std::map<AttemptKey, Open>::iterator place);
  Result<net::Bytes> begin(const net::ServerCall& call);
  Result<net::Bytes> end(const net::ServerCall& call);

  const TransportContext context_;
  const std::shared_ptr<memory::Gate> gate_;
  const Guests& guests_;
  OpenRanges ranges_;
  std::map<AttemptKey, Open> open_;
};

}  // namespace mooncake::transfer::shm
