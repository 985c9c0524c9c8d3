#include "net/ring_network.h"

#include <fmt/format.h>
#include <unistd.h>

#include <deque>
#include <list>
#include <utility>

#include "net/fd_watch.h"
#include "net/ring_stream.h"
#include "net/stream_channel.h"

namespace mooncake::net {
namespace {

constexpr std::size_t kMaxSilent = 64;  // connections without an offer; then the oldest goes
constexpr std::size_t kMaxReady = 256;  // that nobody has accepted yet
constexpr base::Duration kPause = std::chrono::milliseconds(50);  // for want of descriptors

std::string name_of(const Address& address) { return address.host.substr(kRingScheme.size()); }

Result<PeerInfo> check_peer(const os::LocalSocket& socket) {
  MC_TRY(const os::LocalSocket::Credentials peer, socket.peer());
  if (peer.uid != ::geteuid()) {
    return fail(Code::kUnreachable, fmt::format("rings: the other side is of user {}", peer.uid));
  }
  PeerInfo info;
  info.address = fmt::format("shared memory of process {}", peer.pid);
  info.pid = peer.pid;
  return info;
}

// What outlasts the listener while a task waits in accept().
class Reception : public std::enable_shared_from_this<Reception> {
 public:
  Reception(Reactor& reactor, os::LocalSocket socket)
      : reactor_(reactor), socket_(std::move(socket)) {}

  Result<void> start() {
    MC_TRY(watch_, FdWatch::start(reactor_, socket_.fd(), [weak = weak_from_this()] {
             if (const auto self = weak.lock()) self->accept_all();
           }));
    return {};
  }
  // Who waits stays readable: looking again at once would keep the reactor busy.
  void pause() {
    watch_.reset();
    reactor_.run_at(reactor_.now() + kPause, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && !self->closed_ && !self->start()) self->pause();
    });
  }
  void set_quota(std::shared_ptr<RingQuota> quota) { quota_ = std::move(quota); }
  static Task<Result<std::unique_ptr<Channel>>> next(std::shared_ptr<Reception> self);
  void close();

 private:
  struct Guest {
    os::LocalSocket socket;
    PeerInfo peer;
    std::unique_ptr<FdWatch> watch;
  };
  using Place = std::list<Guest>::iterator;

  void accept_all();
  void hear(Place guest);
  Result<void> admit(Guest& guest, const os::LocalSocket::Message& offer);

  Reactor& reactor_;
  os::LocalSocket socket_;
  std::shared_ptr<RingQuota> quota_;
  std::unique_ptr<FdWatch> watch_;
  std::list<Guest> silent_;
  std::deque<std::unique_ptr<Channel>> ready_;
  os::Completion<bool>* waiter_ = nullptr;
  bool closed_ = false;
};

void Reception::accept_all() {
  for (;;) {
    auto socket = socket_.accept();
    if (!socket && socket.error().code() == Code::kBusy) return;
    if (!socket && silent_.empty()) return pause();
    if (!socket) {
      silent_.pop_front();
      continue;
    }
    auto peer = check_peer(*socket);
    if (!peer) continue;
    if (silent_.size() >= kMaxSilent) silent_.pop_front();
    const Place guest = silent_.insert(silent_.end(), {*std::move(socket), *std::move(peer), {}});
    auto watch = FdWatch::start(reactor_, guest->socket.fd(), [this, guest] { hear(guest); });
    if (watch) {
      guest->watch = *std::move(watch);
    } else {
      silent_.erase(guest);
    }
  }
}

void Reception::hear(Place guest) {
  const auto message = guest->socket.receive();
  if (!message && message.error().code() == Code::kBusy) return;
  if (message && ready_.size() < kMaxReady) (void)admit(*guest, *message);
  silent_.erase(guest);
}

Result<void> Reception::admit(Guest& guest, const os::LocalSocket::Message& offer) {
  RingQuota::Place place;
  if (quota_) {
    MC_TRY(place, quota_->take());
  }
  MC_TRY(std::unique_ptr<ByteStream> stream,
         take_rings(reactor_, std::move(guest.socket), offer, std::move(place)));
  ready_.push_back(make_stream_channel(reactor_, std::move(stream), std::move(guest.peer)));
  if (waiter_) waiter_->set(true);
  return {};
}

Task<Result<std::unique_ptr<Channel>>> Reception::next(std::shared_ptr<Reception> self) {
  while (!self->closed_ && self->ready_.empty()) {
    os::Completion<bool> guest(self->reactor_);
    self->waiter_ = &guest;
    co_await guest;
    self->waiter_ = nullptr;
  }
  if (self->closed_) co_return fail(Code::kCancelled, "listener closed");
  std::unique_ptr<Channel> channel = std::move(self->ready_.front());
  self->ready_.pop_front();
  co_return channel;
}

void Reception::close() {
  closed_ = true;
  watch_.reset();
  socket_ = {};
  silent_.clear();
  ready_.clear();
  if (waiter_) waiter_->set(false);
}

class RingListener final : public Listener {
 public:
  RingListener(std::shared_ptr<Reception> reception, Address address)
      : reception_(std::move(reception)), address_(std::move(address)) {}
  ~RingListener() override { close(); }
  Task<Result<std::unique_ptr<Channel>>> accept() override { return Reception::next(reception_); }
  const Address& address() const override { return address_; }
  void close() override { reception_->close(); }
  void set_ring_quota(std::shared_ptr<RingQuota> quota) override {
    reception_->set_quota(std::move(quota));
  }

 private:
  const std::shared_ptr<Reception> reception_;
  const Address address_;
};

}  // namespace

Result<std::unique_ptr<Channel>> connect_rings(Reactor& reactor, const Address& to) {
  MC_TRY(os::LocalSocket socket, os::LocalSocket::connect(name_of(to)));
  MC_TRY(PeerInfo peer, check_peer(socket));
  MC_TRY(std::unique_ptr<ByteStream> stream, offer_rings(reactor, std::move(socket)));
  return make_stream_channel(reactor, std::move(stream), std::move(peer));
}

Result<std::unique_ptr<Listener>> listen_rings(Reactor& reactor, const Address& at) {
  MC_TRY(os::LocalSocket socket, os::LocalSocket::listen(name_of(at)));
  auto reception = std::make_shared<Reception>(reactor, std::move(socket));
  MC_CHECK(reception->start());
  return std::make_unique<RingListener>(std::move(reception), at);
}

}  // namespace mooncake::net
