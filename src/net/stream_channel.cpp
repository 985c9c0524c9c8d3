#include "net/stream_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "net/send_queue.h"
#include "os/user_memory.h"

namespace mooncake::net {
namespace {

constexpr std::size_t kReadAhead = 64u << 10;  // many small frames by one system call
constexpr std::size_t kSmallRead = 16u << 10;  // rests of payloads below this go through it, too
constexpr std::size_t kSmallRoom = 32u << 10;  // beside places below this, it takes what follows
constexpr std::size_t kMaxPlaces = 128;        // of one system call
constexpr std::size_t kTurnBudget = 1u << 20;  // bytes copied before other work has its turn
constexpr std::size_t kMaxHeader = 252;

// The channel's life, which outlasts the Channel while its stream still holds a callback. The
// kernel gets a pointer to memory of ours or of a user only inside a non-blocking call; across a
// suspension there is nothing but the read-ahead buffer.
class Connection final : public Flusher, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Reactor& reactor, std::unique_ptr<ByteStream> stream, PeerInfo peer)
      : reactor_(reactor),
        peer_(std::move(peer)),
        buffer_(new std::byte[kReadAhead]),
        out_(reactor.clock()),
        stream_(std::move(stream)) {}

  Result<void> send(FrameHeader header, base::ConstBuffers payload);
  static Task<Result<void>> send_from(std::shared_ptr<Connection> self, FrameHeader header,
                                      PayloadSource& source, std::size_t size);
  static Task<Result<FrameHeader>> receive(std::shared_ptr<Connection> self);
  static Task<Result<void>> receive_payload(std::shared_ptr<Connection> self, PayloadSink& sink,
                                            std::size_t size);
  void set_version(std::uint8_t version) { version_ = version; }
  void set_stall_timeout(base::Duration timeout) { stall_timeout_ = timeout; }
  void close(const Error& reason);
  bool closed() const { return closed_.has_value(); }
  Backlog backlog() const { return out_.backlog(); }
  const PeerInfo& peer() const { return peer_; }

  void flush() override;

 private:
  // co_await Bytes{*this}: at least one byte more in the buffer. co_await Ready{*this}: the stream
  // has bytes, or its end. Both end early when the channel closes.
  struct Bytes {
    Connection& connection;
    bool await_ready() const noexcept { return connection.closed() || connection.read_now(); }
    void await_suspend(std::coroutine_handle<> caller) const { connection.read_ahead(caller); }
    void await_resume() const noexcept {}
  };
  struct Ready {
    Connection& connection;
    bool await_ready() const noexcept { return connection.closed(); }
    void await_suspend(std::coroutine_handle<> caller) const { connection.wait_readable(caller); }
    void await_resume() const noexcept {}
  };

  std::size_t buffered() const { return end_ - begin_; }
  base::ConstBuffer take(std::size_t size);
  void begin_wait(std::coroutine_handle<> caller);
  void end_wait();
  std::span<std::byte> make_room();
  bool read_now();
  void read_ahead(std::coroutine_handle<> caller);
  void wait_readable(std::coroutine_handle<> caller);
  Result<std::size_t> read_into(PayloadSink& sink, std::size_t size);
  Result<std::size_t> copy_into(PayloadSink& sink, std::size_t size);

  Result<void> check_send(FrameHeader& header, std::size_t size) const;
  void flush_soon();
  void wake(const std::vector<Outgoing*>& frames);
  void wait_writable();

  Error refuse(Error reason);
  Error lost(int system_error) const;
  void watch_for_stalls();
  void check_for_stalls();

  Reactor& reactor_;
  const PeerInfo peer_;
  std::uint8_t version_ = kHelloFrameVersion;
  std::optional<Error> closed_;

  const std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t payload_left_ = 0;
  bool places_fault_ = false;  // some of this payload's can't be written
  bool lost_in_vain_ = false;  // the sink gave such a place again
  std::coroutine_handle<> reader_;
  std::size_t read_now_budget_ = kTurnBudget;  // until the next wait

  SendQueue out_;
  bool flush_scheduled_ = false;
  bool full_ = false;  // the stream takes nothing until it says so

  base::Duration stall_timeout_ = std::chrono::seconds(30);
  std::optional<base::TimePoint> reading_since_;  // waits for the rest of a frame
  std::optional<base::TimePoint> writing_since_;
  os::TimerId stall_timer_ = os::TimerId::kNone;

  const std::unique_ptr<ByteStream> stream_;
};

Error Connection::lost(int system_error) const {
  if (system_error == 0)
    return Error(Code::kConnectionLost, peer_.address + ": closed by the peer");
  return Error(Code::kConnectionLost,
               peer_.address + ": " + std::generic_category().message(system_error));
}

// Receiving.

base::ConstBuffer Connection::take(std::size_t size) {
  const base::ConstBuffer bytes(buffer_.get() + begin_, size);
  begin_ += size;
  if (begin_ == end_) begin_ = end_ = 0;
  return bytes;
}

void Connection::begin_wait(std::coroutine_handle<> caller) {
  assert(!reader_ && "one receiver at a time");
  reader_ = caller;
  if (buffered() == 0 && payload_left_ == 0) return;
  reading_since_ = reactor_.now();
  watch_for_stalls();
}

void Connection::end_wait() {
  reading_since_.reset();
  std::exchange(reader_, nullptr).resume();
}

std::span<std::byte> Connection::make_room() {
  if (kReadAhead - begin_ < kMaxHeader) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= std::exchange(begin_, 0);
  }
  return {buffer_.get() + end_, kReadAhead - end_};
}

// Only so much before other work has its turn: then it waits, if not for long.
bool Connection::read_now() {
  if (read_now_budget_ == 0) return false;
  const std::size_t size = stream_->receive_now(make_room());
  end_ += size;
  read_now_budget_ -= std::min(read_now_budget_, size);
  return size > 0;
}

void Connection::read_ahead(std::coroutine_handle<> caller) {
  begin_wait(caller);
  read_now_budget_ = kTurnBudget;
  stream_->receive_some(make_room(), [self = shared_from_this()](int error, std::size_t size) {
    if (self->closed()) return;
    if (size == 0) return self->close(self->lost(error));
    self->end_ += size;
    self->end_wait();
  });
}

void Connection::wait_readable(std::coroutine_handle<> caller) {
  begin_wait(caller);
  stream_->when_readable([self = shared_from_this()](int error, bool failed) {
    if (self->closed()) return;
    if (failed) return self->close(self->lost(error));
    self->end_wait();
  });
}

Task<Result<FrameHeader>> Connection::receive(std::shared_ptr<Connection> self) {
  assert((self->closed() || self->payload_left_ == 0) &&
         "the payload of the frame before must be taken first");
  while (self->buffered() < kFrameHeaderSize && !self->closed()) {
    if (self->buffered() >= sizeof kFrameMagic) {
      Result<void> begun = check_magic({self->buffer_.get() + self->begin_, self->buffered()});
      if (!begun) co_return fail(self->refuse(std::move(begun).error()));
    }
    co_await Bytes{*self};
  }
  if (self->closed()) co_return fail(*self->closed_);
  const base::ConstBuffer bytes = self->take(kFrameHeaderSize);
  Result<FrameHeader> header = decode(bytes.first<kFrameHeaderSize>(), self->version_);
  if (header && header->header_length > kFrameHeaderSize) {
    const std::size_t size = header->header_length - kFrameHeaderSize;
    self->payload_left_ = size;  // the frame has begun
    while (self->buffered() < size && !self->closed())
      co_await Bytes{*self};
    if (self->closed()) co_return fail(*self->closed_);
    Result<void> checked = check_extensions(self->take(size));
    if (!checked) header = fail(std::move(checked).error());
  }
  if (!header) co_return fail(self->refuse(std::move(header).error()));
  self->payload_left_ = header->payload_length;
  co_return header;
}

// One non-blocking call. The places that the sink names are asked for here and forgotten on return.
Result<std::size_t> Connection::read_into(PayloadSink& sink, std::size_t size) {
  assert(buffered() == 0);
  std::array<std::span<std::byte>, kMaxPlaces> places;
  const std::size_t count = sink.prepare_all(std::min(size, kTurnBudget), places);
  iovec iov[kMaxPlaces + 1];
  std::size_t room = 0;
  for (std::size_t i = 0; i < count; ++i) {
    iov[i] = {places[i].data(), places[i].size()};
    room += places[i].size();
  }
  assert(room > 0 && room <= size);
  iov[count] = {buffer_.get(), kReadAhead};
  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = room == size || room < kSmallRoom ? count + 1 : count;
  ssize_t got;
  do {
    got = stream_->receive(message);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  if (got < 0 && errno == EFAULT && sink.fills_user_memory()) {
    places_fault_ = true;  // one of them; which one, the copies will tell
    return 0;
  }
  if (got <= 0) return fail(lost(got < 0 ? errno : 0));
  const std::size_t placed = std::min(static_cast<std::size_t>(got), room);
  sink.commit(placed);
  end_ = static_cast<std::size_t>(got) - placed;
  return placed;
}

// Out of the read-ahead buffer.
Result<std::size_t> Connection::copy_into(PayloadSink& sink, std::size_t size) {
  if (!sink.fills_user_memory()) {
    const std::span<std::byte> place = sink.prepare(size);
    assert(!place.empty() && place.size() <= size);
    const std::size_t step = std::min(place.size(), buffered());
    std::memcpy(place.data(), take(step).data(), step);
    sink.commit(step);
    return step;
  }
  std::array<std::span<std::byte>, kMaxPlaces> all;
  const std::size_t most = std::min(size, buffered());
  const auto places = std::span(all).first(sink.prepare_all(most, all));
  std::size_t room = 0;
  for (const std::span<std::byte> place : places)
    room += place.size();
  assert(room > 0 && room <= most);
  const std::size_t filled =
      os::scatter_to_user(places, base::ConstBuffer(buffer_.get() + begin_, room));
  std::size_t step = 0;
  for (const std::span<std::byte> place : places.first(filled))
    step += place.size();
  if (step > 0) {
    take(step);
    sink.commit(step);
    lost_in_vain_ = false;
  }
  if (filled == places.size()) return step;
  if (std::exchange(lost_in_vain_, true)) return fail(Code::kInternal, "a place can't be written");
  sink.lose();
  return step;
}

Task<Result<void>> Connection::receive_payload(std::shared_ptr<Connection> self, PayloadSink& sink,
                                               std::size_t size) {
  assert(size <= self->payload_left_);
  self->places_fault_ = self->lost_in_vain_ = false;
  std::size_t budget = kTurnBudget;
  while (size > 0) {
    if (self->closed()) co_return fail(*self->closed_);
    std::size_t step = 0;
    if (self->buffered() > 0) {
      Result<std::size_t> copied = self->copy_into(sink, size);
      if (!copied) {
        self->close(copied.error());
        co_return fail(std::move(copied).error());
      }
      step = *copied;
    } else if (size < kSmallRead || self->places_fault_ || !self->stream_->places_bytes()) {
      co_await Bytes{*self};
      continue;
    } else {
      Result<std::size_t> got = self->read_into(sink, size);
      if (!got) {
        self->close(got.error());
        co_return fail(std::move(got).error());
      }
      step = *got;
      if (step == 0 && self->places_fault_) continue;
      if (step == 0) {
        co_await Ready{*self};
        budget = kTurnBudget;
        continue;
      }
    }
    size -= step;
    self->payload_left_ -= step;
    budget -= std::min(budget, step);
    if (budget == 0 && size > 0) {
      co_await self->reactor_.yield();
      budget = kTurnBudget;
    }
  }
  co_return Result<void>();
}

// Sending.

Result<void> Connection::check_send(FrameHeader& header, std::size_t size) const {
  if (closed_) return fail(*closed_);
  const std::size_t limit = (header.flags & kData) != 0 ? kMaxDataPayload : kMaxControlPayload;
  if (size > limit) {
    return fail(Code::kInvalidArgument,
                fmt::format("frame of {} bytes, at most {} are allowed", size, limit));
  }
  header.version = version_;
  header.payload_length = static_cast<std::uint32_t>(size);
  return {};
}

Result<void> Connection::send(FrameHeader header, base::ConstBuffers payload) {
  const std::size_t size = base::total_size(payload);
  MC_CHECK(check_send(header, size));
  const std::size_t waiting = out_.backlog().bytes;
  if (waiting + size > kMaxQueuedBytes) {
    return fail(Code::kBusy, fmt::format("{}: {} bytes wait to leave", peer_.address, waiting));
  }
  out_.append(encode(header));
  out_.append(payload, size);
  flush_soon();
  return {};
}

Task<Result<void>> Connection::send_from(std::shared_ptr<Connection> self, FrameHeader header,
                                         PayloadSource& source, std::size_t size) {
  MC_CO_CHECK(self->check_send(header, size));
  self->out_.append(encode(header));
  self->flush_soon();
  if (size == 0) co_return Result<void>();
  Outgoing frame(source, size);
  self->out_.append(frame);
  struct Left {
    Outgoing& frame;
    bool await_ready() const noexcept { return frame.result.has_value(); }
    void await_suspend(std::coroutine_handle<> caller) const noexcept { frame.waiter = caller; }
    void await_resume() const noexcept {}
  };
  co_await Left{frame};
  co_return *std::move(frame.result);
}

void Connection::flush_soon() {
  if (full_ || std::exchange(flush_scheduled_, true)) return;
  reactor_.flush_later(shared_from_this());
}

void Connection::flush() {
  flush_scheduled_ = false;
  std::size_t budget = kTurnBudget;
  while (!closed_ && !full_ && !out_.empty()) {
    if (budget == 0) return flush_soon();
    const std::size_t before = budget;
    Pieces pieces;
    out_.gather(pieces);
    const ssize_t sent = stream_->send(pieces);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return close(lost(errno));
    } else {
      writing_since_.reset();
      wake(out_.consume(static_cast<std::size_t>(sent)));
      budget = before - std::min(before, static_cast<std::size_t>(sent));
    }
    if (sent < 0 || static_cast<std::size_t>(sent) < pieces.total()) wait_writable();
  }
}

void Connection::wake(const std::vector<Outgoing*>& frames) {
  for (Outgoing* frame : frames) {
    if (!frame->waiter) continue;
    reactor_.post([waiter = std::exchange(frame->waiter, nullptr)] { waiter.resume(); });
  }
}

void Connection::wait_writable() {
  full_ = true;
  if (!writing_since_) writing_since_ = reactor_.now();
  watch_for_stalls();
  stream_->when_writable([self = shared_from_this()](int error, bool failed) {
    self->full_ = false;
    if (self->closed()) return;
    if (failed) return self->close(self->lost(error));
    self->flush();
  });
}

// Closing.

// The peer sent what it must not send.
Error Connection::refuse(Error reason) {
  reason = std::move(reason).with_context(peer_.address);
  close(reason);
  return reason;
}

void Connection::close(const Error& reason) {
  if (closed_) return;
  closed_.emplace(reason);
  if (reader_) reactor_.post([reader = std::exchange(reader_, nullptr)] { reader.resume(); });
  wake(out_.drop(reason));
  if (stall_timer_ != os::TimerId::kNone) reactor_.cancel(stall_timer_);
  // Last: a peer that sees the end finds that all here has been told before.
  stream_->close();
}

void Connection::watch_for_stalls() {
  if (stall_timer_ != os::TimerId::kNone) return;
  const base::TimePoint since = std::min(reading_since_.value_or(base::TimePoint::max()),
                                         writing_since_.value_or(base::TimePoint::max()));
  stall_timer_ = reactor_.run_at(since + stall_timeout_, [weak = weak_from_this()] {
    if (std::shared_ptr<Connection> self = weak.lock()) self->check_for_stalls();
  });
}

// The timer is not moved with each byte; it looks at what has become of the wait it was set for.
void Connection::check_for_stalls() {
  stall_timer_ = os::TimerId::kNone;
  const base::TimePoint limit = reactor_.now() - stall_timeout_;
  const bool reading = reading_since_ && *reading_since_ <= limit;
  if (reading || (writing_since_ && *writing_since_ <= limit)) {
    return close(Error(
        Code::kDeadlineExceeded,
        fmt::format("{}: a frame stood still for {} ms while {}", peer_.address,
                    std::chrono::duration_cast<std::chrono::milliseconds>(stall_timeout_).count(),
                    reading ? "arriving" : "leaving")));
  }
  if (reading_since_ || writing_since_) watch_for_stalls();
}

class StreamChannel final : public Channel {
 public:
  explicit StreamChannel(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  ~StreamChannel() override {
    connection_->close(Error(Code::kConnectionLost, "channel destroyed"));
  }

  Result<void> send(FrameHeader header, base::ConstBuffers payload) override {
    return connection_->send(header, payload);
  }
  Task<Result<void>> send_from(FrameHeader header, PayloadSource& source,
                               std::size_t size) override {
    return Connection::send_from(connection_, header, source, size);
  }
  Backlog backlog() const override { return connection_->backlog(); }
  Task<Result<FrameHeader>> receive() override { return Connection::receive(connection_); }
  Task<Result<void>> receive_payload(PayloadSink& sink, std::size_t size) override {
    return Connection::receive_payload(connection_, sink, size);
  }
  void set_version(std::uint8_t version) override { connection_->set_version(version); }
  void set_stall_timeout(base::Duration timeout) override {
    connection_->set_stall_timeout(timeout);
  }
  void close(Error reason) override { connection_->close(reason); }
  bool closed() const override { return connection_->closed(); }
  const PeerInfo& peer() const override { return connection_->peer(); }

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<Channel> make_stream_channel(Reactor& reactor, std::unique_ptr<ByteStream> stream,
                                             PeerInfo peer) {
  return std::make_unique<StreamChannel>(
      std::make_shared<Connection>(reactor, std::move(stream), std::move(peer)));
}

}  // namespace mooncake::net
