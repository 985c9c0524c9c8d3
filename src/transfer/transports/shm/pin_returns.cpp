#include "transfer/transports/shm/pin_returns.h"

#include <unistd.h>

#include <utility>

namespace mooncake::transfer::shm {

class PinReturns::Held {
 public:
  Held(std::shared_ptr<PinReturns> returns, std::shared_ptr<HostPeer> host, HostPeer::Place place,
       Peer peer, AttemptId id)
      : returns_(std::move(returns)),
        host_(std::move(host)),
        place_(std::move(place)),
        peer_(std::move(peer)),
        id_(id) {}
  ~Held() { returns_->take_back(peer_, id_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const std::shared_ptr<PinReturns> returns_;
  const std::shared_ptr<HostPeer> host_;
  const HostPeer::Place place_;
  const Peer peer_;
  const AttemptId id_;
};

PinReturns::PinReturns(os::Executor& executor, Unpin unpin)
    : owner_(::getpid()), unpin_(std::move(unpin)), executor_(&executor) {}

std::shared_ptr<PinReturns> PinReturns::create(os::Executor& executor, Unpin unpin) {
  return std::shared_ptr<PinReturns>(new PinReturns(executor, std::move(unpin)));
}

std::shared_ptr<void> PinReturns::hold(std::shared_ptr<HostPeer> host, HostPeer::Place place,
                                       Peer peer, AttemptId id) {
  return std::make_shared<Held>(shared_from_this(), std::move(host), std::move(place),
                                std::move(peer), id);
}

void PinReturns::close() {
  unpin_ = {};
  std::lock_guard lock(mutex_);
  executor_ = nullptr;
}

// In a forked child there is no executor, and what the parent holds is the parent's.
void PinReturns::take_back(const Peer& peer, AttemptId id) {
  if (::getpid() != owner_) return;
  std::lock_guard lock(mutex_);
  if (!executor_) return;
  executor_->post([self = shared_from_this(), peer, id] {
    if (self->unpin_) self->unpin_(peer, id);
  });
}

}  // namespace mooncake::transfer::shm
