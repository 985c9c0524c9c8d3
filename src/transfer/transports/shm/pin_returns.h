// PinReturns: how pins at other processes come back from whatever thread lets go of them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>

#include "os/executor.h"
#include "transfer/transport.h"
#include "transfer/transports/shm/host_peer.h"

namespace mooncake::transfer::shm {

class PinReturns : public std::enable_shared_from_this<PinReturns> {
 public:
  // `unpin` is called on the executor's thread, until close().
  using Unpin = std::function<void(const Peer&, AttemptId)>;
  static std::shared_ptr<PinReturns> create(os::Executor& executor, Unpin unpin);
  PinReturns(const PinReturns&) = delete;
  PinReturns& operator=(const PinReturns&) = delete;

  // What keeps the pin `id` at `peer`, and its bytes here: the mapping, and the connection by whose
  // end the owner knows that this process has let go of all, should nobody be left to say it.
  std::shared_ptr<void> hold(std::shared_ptr<HostPeer> host, HostPeer::Place place, Peer peer,
                             AttemptId id);
  // Executor thread. From here on pins end with their connection alone.
  void close();

 private:
  class Held;
  PinReturns(os::Executor& executor, Unpin unpin);
  void take_back(const Peer& peer, AttemptId id);

  const pid_t owner_;
  Unpin unpin_;  // executor thread only
  std::mutex mutex_;
  os::Executor* executor_;  // guarded by mutex_; null once closed
};

}  // namespace mooncake::transfer::shm
