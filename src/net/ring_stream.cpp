#include "net/ring_stream.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "net/fd_watch.h"
#include "net/ring.h"
#include "os/shared_mapping.h"
#include "os/user_memory.h"

namespace mooncake::net {
namespace {

constexpr std::uint64_t kOfferMagic = 0x676E69722D636D00;  // "\0mc-ring"
constexpr std::uint32_t kRingVersion = 1;

struct Offer {
  std::uint64_t magic = kOfferMagic;
  std::uint32_t version = kRingVersion;
  std::uint32_t capacity = RingEnd::kCapacity;
};

// The two rings in the memory: the first is written by who offered them.
RingState& state_of(const os::Mapping& memory, int which) {
  return reinterpret_cast<RingState*>(memory.data())[which];
}
std::byte* bytes_of(const os::Mapping& memory, int which) {
  return memory.data() + kRingStates + static_cast<std::size_t>(which) * RingEnd::kCapacity;
}

// Either the reactor looks at the rings (it is watched), or whoever writes to them rings the bell.
class Rings final : public Poller, public std::enable_shared_from_this<Rings> {
 public:
  // `out`: which of the two we write.
  Rings(Reactor& reactor, os::LocalSocket bell, os::Mapping memory, int out, RingQuota::Place place)
      : reactor_(reactor),
        bell_(std::move(bell)),
        place_(std::move(place)),
        memory_(std::move(memory)),
        in_(state_of(memory_, 1 - out), bytes_of(memory_, 1 - out)),
        out_(state_of(memory_, out), bytes_of(memory_, out)) {}

  Result<void> start();
  void receive_some(std::span<std::byte> to, ByteStream::Filled done);
  std::size_t receive_now(std::span<std::byte> to);
  ssize_t send(const Pieces& pieces);
  void when_writable(ByteStream::Ready done);
  void close();

  bool has_input() override;
  void take_input() override;
  bool rest() override;

 private:
  void listen_to_bell();
  void ring();
  bool can_write() { return out_.room() > 0 || out_.is_broken() || ended_; }
  bool can_read() { return in_.available() > 0 || in_.is_broken() || ended_; }

  Reactor& reactor_;
  os::LocalSocket bell_;
  RingQuota::Place place_;
  const os::Mapping memory_;
  RingReader in_;
  RingWriter out_;
  std::unique_ptr<FdWatch> bell_watch_;
  bool ended_ = false;  // the other side has gone; what it wrote before is there
  bool closed_ = false;

  ByteStream::Filled filled_;  // with to_
  std::span<std::byte> to_;
  ByteStream::Ready writable_;
};

Result<void> Rings::start() {
  MC_TRY(bell_watch_, FdWatch::start(reactor_, bell_.fd(), [weak = weak_from_this()] {
           if (const auto self = weak.lock()) self->listen_to_bell();
         }));
  reactor_.watch(shared_from_this());
  return {};
}

// What is there is said once by the bell, and from then on seen.
void Rings::listen_to_bell() {
  const auto heard = bell_.drain();
  if (!heard && heard.error().code() != Code::kBusy) {
    ended_ = true;
    bell_watch_.reset();
  }
  in_.wake();
  reactor_.watch(shared_from_this());
  if (has_input()) take_input();
}

// Whether the bell is heard doesn't matter: a full socket is full of bells, a closed one is told to
// its watch.
void Rings::ring() {
  constexpr std::array kBell{std::byte{1}};
  (void)bell_.send(kBell);
}

bool Rings::has_input() {
  return !closed_ && ((filled_ && can_read()) || (writable_ && can_write()));
}

void Rings::take_input() {
  const auto self = shared_from_this();  // a callback may drop the stream
  if (writable_ && can_write()) {
    const bool lost = out_.is_broken() || ended_;
    std::exchange(writable_, nullptr)(out_.is_broken() ? EPROTO : 0, lost);
  }
  if (closed_ || !filled_ || !can_read()) return;
  const std::size_t size = receive_now(std::exchange(to_, {}));
  std::exchange(filled_, nullptr)(in_.is_broken() ? EPROTO : 0, size);
}

bool Rings::rest() {
  in_.sleep();
  if (!has_input()) return true;
  in_.wake();
  return false;
}

void Rings::receive_some(std::span<std::byte> to, ByteStream::Filled done) {
  to_ = to;
  filled_ = std::move(done);
  if (can_read()) reactor_.watch(shared_from_this());
}

std::size_t Rings::receive_now(std::span<std::byte> to) {
  if (closed_) return 0;
  const RingReader::Taken taken = in_.take(to);
  if (taken.writer_sleeps) ring();
  return taken.size;
}

// The next `size` bytes of what is left; `sent` are gone of the first part.
std::vector<base::ConstBuffer> cut(std::span<const iovec>& rest, std::size_t& sent,
                                   std::size_t size) {
  std::vector<base::ConstBuffer> parts;
  while (size > 0) {
    const iovec& first = rest.front();
    const std::size_t step = std::min(size, first.iov_len - sent);
    parts.emplace_back(static_cast<const std::byte*>(first.iov_base) + sent, step);
    size -= step;
    sent += step;
    if (sent < first.iov_len) continue;
    rest = rest.subspan(1);
    sent = 0;
  }
  return parts;
}

// False when some of it can't be read.
bool fill(std::span<std::byte> place, base::ConstBuffers parts, bool user_memory) {
  if (user_memory) return parts.empty() || os::gather_from_user(place.data(), parts);
  for (const base::ConstBuffer part : parts) {
    std::memcpy(place.data(), part.data(), part.size());
    place = place.subspan(part.size());
  }
  return true;
}

ssize_t Rings::send(const Pieces& pieces) {
  if (ended_ || out_.is_broken()) {
    errno = ended_ ? EPIPE : EPROTO;
    return -1;
  }
  const std::size_t size = std::min(out_.room(), pieces.total());
  if (size == 0) {
    errno = EAGAIN;
    return -1;
  }
  auto rest = pieces.parts();
  std::size_t sent = 0;  // of the first
  for (const std::span<std::byte> place : out_.places(size)) {
    const auto parts = cut(rest, sent, place.size());
    if (fill(place, parts, pieces.has_user_memory())) continue;
    errno = EFAULT;
    return -1;
  }
  if (out_.publish(size)) ring();
  return static_cast<ssize_t>(size);
}

void Rings::when_writable(ByteStream::Ready done) {
  writable_ = std::move(done);
  out_.sleep();
  if (can_write()) reactor_.watch(shared_from_this());
}

void Rings::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  reactor_.unwatch(*this);
  bell_watch_.reset();
  bell_ = {};
  place_ = {};
  filled_ = nullptr;
  writable_ = nullptr;
}

class RingStream final : public ByteStream {
 public:
  explicit RingStream(std::shared_ptr<Rings> rings) : rings_(std::move(rings)) {}
  ~RingStream() override { rings_->close(); }

  void receive_some(std::span<std::byte> to, Filled done) override {
    rings_->receive_some(to, std::move(done));
  }
  std::size_t receive_now(std::span<std::byte> to) override { return rings_->receive_now(to); }
  bool places_bytes() const override { return false; }
  ssize_t receive(msghdr&) override {
    errno = ENOTSUP;
    return -1;
  }
  void when_readable(Ready) override {}
  ssize_t send(Pieces& pieces) override { return rings_->send(pieces); }
  void when_writable(Ready done) override { rings_->when_writable(std::move(done)); }
  void close() override { rings_->close(); }

 private:
  const std::shared_ptr<Rings> rings_;
};

Result<std::unique_ptr<ByteStream>> stream_of(Reactor& reactor, os::LocalSocket bell,
                                              os::Mapping memory, int out, RingQuota::Place place) {
  // Both sides use all of it from the start: a fault for each page would come at the worst time.
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14; a wish
  (void)::madvise(memory.data(), memory.size(), kPopulateWrite);
  auto rings =
      std::make_shared<Rings>(reactor, std::move(bell), std::move(memory), out, std::move(place));
  MC_CHECK(rings->start());
  return std::make_unique<RingStream>(std::move(rings));
}

}  // namespace

Result<std::unique_ptr<ByteStream>> offer_rings(Reactor& reactor, os::LocalSocket bell) {
  MC_TRY(os::OwnedMapping memory, os::OwnedMapping::create("mooncake-rings", kRingMemory,
                                                           os::OwnedMapping::PeersMay::kWrite));
  const Offer offer;
  const std::array fds{memory.fd()};
  MC_CHECK(bell.send(std::as_bytes(std::span(&offer, 1)), fds));
  return stream_of(reactor, std::move(bell), std::move(memory), 0, {});
}

Result<std::unique_ptr<ByteStream>> take_rings(Reactor& reactor, os::LocalSocket bell,
                                               const os::LocalSocket::Message& message,
                                               RingQuota::Place place) {
  Offer offer;
  if (message.bytes.size() != sizeof offer || message.fds.size() != 1) {
    return fail(Code::kProtocolError, "no offer of rings");
  }
  std::memcpy(&offer, message.bytes.data(), sizeof offer);
  if (offer.magic != kOfferMagic || offer.version != kRingVersion ||
      offer.capacity != RingEnd::kCapacity) {
    return fail(Code::kProtocolError,
                fmt::format("rings of version {}, {} bytes; ours are {}, {}", offer.version,
                            offer.capacity, kRingVersion, RingEnd::kCapacity));
  }
  MC_TRY(os::SharedMapping memory, os::SharedMapping::map(message.fds.front().get(), kRingMemory,
                                                          os::SharedMapping::Use::kReadWrite));
  return stream_of(reactor, std::move(bell), std::move(memory), 1, std::move(place));
}

}  // namespace mooncake::net
