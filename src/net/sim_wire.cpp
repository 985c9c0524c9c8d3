#include "net/sim_wire.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace mooncake::net {
namespace {

// Payload bytes that a direction holds, as socket buffers would, before its sender has to wait.
constexpr std::size_t kWindow = 256 * 1024;

class SimChannel final : public Channel {
 public:
  SimChannel(std::shared_ptr<SimConnection> connection, int side)
      : connection_(std::move(connection)), side_(side) {}
  ~SimChannel() override { close(Error(Code::kConnectionLost, "channel destroyed")); }

  Result<void> send(FrameHeader header, base::ConstBuffers payload) override {
    return connection_->send(side_, header, payload);
  }
  Task<Result<void>> send_from(FrameHeader header, PayloadSource& source,
                               std::size_t size) override {
    return SimConnection::send_from(connection_, side_, header, source, size);
  }
  Backlog backlog() const override { return connection_->backlog(side_); }
  Task<Result<FrameHeader>> receive() override {
    return SimConnection::receive(connection_, side_);
  }
  Task<Result<void>> receive_payload(PayloadSink& sink, std::size_t size) override {
    return SimConnection::receive_payload(connection_, side_, sink, size);
  }
  void set_version(std::uint8_t version) override { connection_->set_version(side_, version); }
  void set_stall_timeout(base::Duration timeout) override {
    connection_->set_stall_timeout(side_, timeout);
  }
  void close(Error reason) override { connection_->close(side_, std::move(reason)); }
  bool closed() const override { return connection_->closed(side_); }
  const PeerInfo& peer() const override { return connection_->peer(side_); }

 private:
  const std::shared_ptr<SimConnection> connection_;
  const int side_;
};

}  // namespace

base::Duration SimContext::up_to(base::Duration limit) {
  return base::Duration(random.below(static_cast<std::uint64_t>(limit.count()) + 1));
}

base::Duration SimContext::latency() {
  if (!faults) return base::Duration(0);
  return faults->latency_min +
         up_to(std::max(base::Duration(0), faults->latency_max - faults->latency_min));
}

bool SimContext::partitioned(const std::string& a, const std::string& b) const {
  return partitions.contains(std::minmax(a, b));
}

SimConnection::SimConnection(std::shared_ptr<SimContext> context,
                             std::shared_ptr<SimPeer> connected, std::shared_ptr<SimPeer> accepted)
    : context_(std::move(context)) {
  ends_[0].peer.address = accepted->name;
  ends_[1].peer.address = connected->name;
  ends_[0].host = std::move(connected);
  ends_[1].host = std::move(accepted);
}

std::unique_ptr<Channel> SimConnection::channel(int side) {
  return std::make_unique<SimChannel>(shared_from_this(), side);
}

// Sending.

Result<void> SimConnection::enqueue(int side, Outgoing frame) {
  End& end = ends_[side];
  Direction& out = from_[side];
  if (end.closed) return fail(*end.closed);
  if (end.broken) return fail(gone(side));
  if (out.outgoing_bytes + frame.bytes.size() > kMaxQueuedBytes) {
    return fail(Code::kBusy, end.peer.address + ": too much waits to leave");
  }
  frame.header.version = end.version;
  frame.since = end.host->executor.now();
  frame.left = frame.header.payload_length;
  out.outgoing_bytes += frame.bytes.size();
  out.outgoing.push_back(std::move(frame));
  start_pump(side);
  return {};
}

Result<void> SimConnection::send(int side, FrameHeader header, base::ConstBuffers payload) {
  Outgoing frame;
  frame.header = header;
  for (base::ConstBuffer part : payload) {
    frame.bytes.insert(frame.bytes.end(), part.begin(), part.end());
  }
  assert(frame.bytes.size() <= (header.flags & kData ? kMaxDataPayload : kMaxControlPayload));
  frame.header.payload_length = static_cast<std::uint32_t>(frame.bytes.size());
  return enqueue(side, std::move(frame));
}

Task<Result<void>> SimConnection::send_from(std::shared_ptr<SimConnection> self, int side,
                                            FrameHeader header, PayloadSource& source,
                                            std::size_t size) {
  assert(size <= (header.flags & kData ? kMaxDataPayload : kMaxControlPayload));
  Done done(self->ends_[side].host->executor);
  Outgoing frame;
  frame.header = header;
  frame.header.payload_length = static_cast<std::uint32_t>(size);
  frame.source = &source;
  frame.sender = &done;
  MC_CO_CHECK(self->enqueue(side, std::move(frame)));
  co_return co_await done;
}

Backlog SimConnection::backlog(int side) const {
  const Direction& out = from_[side];
  if (out.outgoing.empty()) return {};
  return {out.outgoing_bytes, out.outgoing.front().since};
}

void SimConnection::start_pump(int side) {
  Direction& out = from_[side];
  if (out.pumping || out.outgoing.empty() || !ends_[side].host->alive || !context_->faults) return;
  out.pumping = true;
  ends_[side].host->executor.post([self = shared_from_this(), side] { self->pump(side); });
}

void SimConnection::pump(int side) {
  Direction& out = from_[side];
  out.pumping = false;
  if (!context_->faults) return;
  std::size_t budget = std::max<std::size_t>(context_->faults->copy_step, 1);
  while (budget > 0 && !out.outgoing.empty()) {
    if (out.dead) {
      end_outgoing(side, Result<void>());  // into the void, which looks like success
      return;
    }
    if (out.unread >= kWindow) return stand_still(side);
    out.full_since.reset();
    budget -= std::min(budget, pump_step(side, budget));
  }
  start_pump(side);
}

// The pump goes on when the receiver has taken something, if that is soon enough.
void SimConnection::stand_still(int side) {
  Direction& out = from_[side];
  os::SimHost& executor = ends_[side].host->executor;
  if (!out.full_since) out.full_since = executor.now();
  if (std::exchange(out.watched, true)) return;
  executor.run_at(*out.full_since + ends_[side].stall_timeout, [weak = weak_from_this(), side] {
    if (const auto self = weak.lock()) self->check_for_stall(side);
  });
}

// The timer is not moved with each step; it looks at what has become of the wait.
void SimConnection::check_for_stall(int side) {
  Direction& out = from_[side];
  out.watched = false;
  if (!out.full_since) return;
  if (ends_[side].host->executor.now() - *out.full_since < ends_[side].stall_timeout) {
    return stand_still(side);
  }
  close(side, Error(Code::kDeadlineExceeded, ends_[side].peer.address + ": a frame stood still"));
}

// The next `size` bytes of the frame; zeros when the source's memory is out of reach.
std::vector<std::byte> SimConnection::read(Outgoing& frame, std::size_t size) {
  if (!frame.source) {
    const auto begin = frame.bytes.end() - static_cast<std::ptrdiff_t>(frame.left);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }
  std::vector<std::byte> bytes;
  while (bytes.size() < size && frame.source->live()) {
    const base::ConstBuffer part = frame.source->next(size - bytes.size());
    assert(!part.empty() && part.size() <= size - bytes.size());
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  bytes.resize(size);
  return bytes;
}

// Sends at most `budget` bytes of the first frame; returns what it cost.
std::size_t SimConnection::pump_step(int side, std::size_t budget) {
  Direction& out = from_[side];
  Outgoing& frame = out.outgoing.front();
  Item item;
  if (!frame.begun) begin_frame(side, frame);
  item.header = frame.header;
  item.first = std::exchange(frame.begun, true) == false;
  std::size_t size = std::min(frame.left, budget);
  if (out.fate == Fate::kLose) size = std::min(size, frame.left - out.lost_below);
  item.bytes = read(frame, size);
  frame.left -= size;
  if (out.fate == Fate::kLose && frame.left <= out.lost_below) {
    // The first bytes of a frame may arrive; its header alone would be the same as nothing.
    if (!item.bytes.empty()) put_on_wire(side, std::move(item), {});
    lose(side);
    return budget;
  }
  item.last = frame.left == 0;
  const bool last = item.last;
  if (!out.vanishes) {
    const bool late = last && out.fate == Fate::kCut;
    put_on_wire(side, std::move(item),
                late ? context_->up_to(context_->faults->late) : base::Duration(0));
  }
  if (last) end_frame(side);
  return size + kFrameHeaderSize;
}

SimConnection::Message SimConnection::roll(const FrameHeader& header) {
  const SimFaults& faults = *context_->faults;
  base::Random& random = context_->random;
  const auto happens = [&](double chance) { return chance > 0 && random.chance(chance); };
  Message message;
  if (happens(faults.lose)) {
    message.fate = Fate::kLose;
    message.frames_before_loss = random.below(3);
  } else if (happens(faults.cut)) {
    message.fate = Fate::kCut;
  } else if (!(header.flags & (kReply | kData | kMore)) && header.method >= 0x0100 &&
             happens(faults.duplicate)) {
    message.fate = Fate::kDuplicate;
  }
  return message;
}

// Decides what will become of this frame; a message of several frames meets its fate once.
void SimConnection::begin_frame(int side, Outgoing& frame) {
  Direction& out = from_[side];
  const FrameHeader& header = frame.header;
  out.vanishes = context_->partitioned(ends_[0].host->name, ends_[1].host->name);
  out.fate = Fate::kNone;
  auto [found, is_new] = out.messages.try_emplace(header.request_id);
  if (is_new) {
    ++context_->counters.messages;
    found->second = roll(header);
    if (context_->faults->stall > 0 && context_->random.chance(context_->faults->stall)) {
      ++context_->counters.stalled;
      out.stalled_until =
          ends_[side].host->executor.now() + context_->up_to(context_->faults->late);
    }
  }
  Message& message = found->second;
  const bool last = !(header.flags & kMore);
  if (message.fate == Fate::kLose) {
    if (last || message.frames_before_loss == 0) out.fate = Fate::kLose;
    if (message.frames_before_loss > 0) --message.frames_before_loss;
  } else if (last) {
    out.fate = message.fate;
  }
  if (out.vanishes) out.fate = Fate::kNone;
  if (out.fate == Fate::kLose) {
    out.lost_below = frame.left == 0 ? 0 : 1 + context_->random.below(frame.left);
  }
  if (last) out.messages.erase(found);
}

void SimConnection::end_frame(int side) {
  Direction& out = from_[side];
  Outgoing frame = std::move(out.outgoing.front());
  out.outgoing.pop_front();
  out.outgoing_bytes -= frame.bytes.size();
  if (frame.sender) frame.sender->set(Result<void>());
  if (out.fate == Fate::kDuplicate) duplicate(side, frame);
  if (out.fate == Fate::kCut) cut(side);
}

void SimConnection::duplicate(int side, const Outgoing& frame) {
  const End& to = ends_[1 - side];
  if (!to.host->alive || frame.source) return;
  Item again;
  again.header = frame.header;
  again.bytes = frame.bytes;
  again.first = again.last = true;
  const base::TimePoint when = from_[side].last_arrival + context_->up_to(context_->faults->late);
  to.host->executor.run_at(when, [self = shared_from_this(), side, again = std::move(again)] {
    self->from_[side].duplicates.push_back(again);
    if (!self->from_[side].mid_frame) self->arrive_duplicates(side);
  });
}

// Flying and arriving.

void SimConnection::put_on_wire(int side, Item item, base::Duration extra) {
  Direction& out = from_[side];
  const End& to = ends_[1 - side];
  if (!to.host->alive || to.closed || !context_->faults) return;
  const base::TimePoint now = to.host->executor.now();
  out.last_arrival = std::max(
      {out.last_arrival, now + context_->latency() + extra, item.breaks ? now : out.stalled_until});
  out.unread += item.bytes.size();
  out.wire.push_back(std::move(item));
  schedule_delivery(side, out.last_arrival);
}

// Each delivery takes the first item, so that the order stands however the executor shuffles.
void SimConnection::schedule_delivery(int side, base::TimePoint when) {
  ends_[1 - side].host->executor.run_at(when,
                                        [self = shared_from_this(), side] { self->deliver(side); });
}

void SimConnection::deliver(int side) {
  Direction& out = from_[side];
  if (out.wire.empty()) return;
  if (out.wire.front().breaks) {
    out.break_held = context_->partitioned(ends_[0].host->name, ends_[1].host->name);
    if (out.break_held) return;
    out.wire.clear();
    break_end(1 - side);
    return;
  }
  Item item = std::move(out.wire.front());
  out.wire.pop_front();
  arrive(side, std::move(item));
  if (!out.mid_frame) arrive_duplicates(side);
}

void SimConnection::heal() {
  for (int side : {0, 1}) {
    if (!std::exchange(from_[side].break_held, false)) continue;
    if (!ends_[1 - side].host->alive) continue;
    schedule_delivery(side, ends_[1 - side].host->executor.now() + context_->latency());
  }
}

void SimConnection::arrive(int side, Item item) {
  Direction& out = from_[side];
  End& to = ends_[1 - side];
  out.mid_frame = !item.last;
  if (to.closed || to.broken) return;
  if (item.first) number(side, item.header);
  if (out.dropping) {
    out.unread -= item.bytes.size();
    start_pump(side);
    return;
  }
  if (item.first) {
    to.inbox.emplace_back();
    to.inbox.back().header = item.header;
    to.inbox.back().bytes = std::move(item.bytes);
  } else {
    std::vector<std::byte>& bytes = to.inbox.back().bytes;
    bytes.insert(bytes.end(), item.bytes.begin(), item.bytes.end());
  }
  wake(1 - side);
}

void SimConnection::arrive_duplicates(int side) {
  Direction& out = from_[side];
  while (!out.duplicates.empty()) {
    Incoming again;
    again.header = out.duplicates.front().header;
    again.bytes = std::move(out.duplicates.front().bytes);
    out.duplicates.pop_front();
    End& to = ends_[1 - side];
    if (to.closed || to.broken) continue;
    Numbers& numbers = numbers_[side];
    again.header.request_id = ++numbers.highest;
    ++numbers.shift;
    numbers.duplicates.insert(again.header.request_id);
    ++context_->counters.duplicated;
    out.unread += again.bytes.size();
    to.inbox.push_back(std::move(again));
    wake(1 - side);
  }
}

// Translates the request id of a frame that arrives, and marks replies to duplicates for dropping.
void SimConnection::number(int side, FrameHeader& header) {
  const std::uint32_t id = header.request_id;
  Numbers& theirs = numbers_[1 - side];  // requests that the receiver of this frame has made
  from_[side].dropping = false;
  const bool is_reply =
      (header.flags & kReply) || theirs.known_as.contains(id) || theirs.duplicates.contains(id);
  if (is_reply) {
    from_[side].dropping = theirs.duplicates.contains(id);
    const auto found = theirs.known_as.find(id);
    if (found != theirs.known_as.end()) header.request_id = found->second;
    return;
  }
  Numbers& numbers = numbers_[side];
  auto [found, is_new] = numbers.seen_as.try_emplace(id, id + numbers.shift);
  header.request_id = found->second;
  if (is_new) numbers.known_as[found->second] = id;
  numbers.highest = std::max(numbers.highest, header.request_id);
}

// Receiving.

bool SimConnection::first_is_complete(const End& end) const {
  return end.inbox.front().taken == end.inbox.front().header.payload_length;
}

void SimConnection::pop_front(int side) {
  ends_[side].inbox.pop_front();
  ends_[side].opened = false;
}

Task<Result<FrameHeader>> SimConnection::receive(std::shared_ptr<SimConnection> self, int side) {
  End& end = self->ends_[side];
  assert(!end.opened && "the payload of the frame before must be taken first");
  while (!end.closed && end.inbox.empty()) {
    if (end.broken) co_return fail(self->gone(side));
    assert(!end.receiver);
    os::Completion<bool> arrival(end.host->executor);
    end.receiver = &arrival;
    co_await arrival;
  }
  if (end.closed) co_return fail(*end.closed);
  const FrameHeader header = end.inbox.front().header;
  end.opened = true;
  if (self->first_is_complete(end)) self->pop_front(side);
  co_return header;
}

std::size_t SimConnection::take(int side, PayloadSink& sink, std::size_t size) {
  Incoming& frame = ends_[side].inbox.front();
  std::size_t taken = 0;
  while (taken < size) {
    const std::span<std::byte> to = sink.prepare(size - taken);
    assert(!to.empty() && to.size() <= size - taken);
    std::memcpy(to.data(), frame.bytes.data() + frame.taken, to.size());
    sink.commit(to.size());
    frame.taken += to.size();
    taken += to.size();
  }
  from_[1 - side].unread -= taken;
  start_pump(1 - side);
  return taken;
}

Task<Result<void>> SimConnection::receive_payload(std::shared_ptr<SimConnection> self, int side,
                                                  PayloadSink& sink, std::size_t size) {
  End& end = self->ends_[side];
  while (size > 0) {
    if (end.closed) co_return fail(*end.closed);
    if (end.inbox.empty()) co_return fail(self->gone(side));
    assert(end.opened);
    const std::size_t arrived = end.inbox.front().bytes.size() - end.inbox.front().taken;
    if (arrived == 0) {
      if (end.broken) co_return fail(self->gone(side));
      assert(!end.receiver);
      os::Completion<bool> arrival(end.host->executor);
      end.receiver = &arrival;
      co_await arrival;
      continue;
    }
    const SimFaults* faults = self->context_->faults;
    const std::size_t step = std::max<std::size_t>(faults ? faults->copy_step : 1, 1);
    size -= self->take(side, sink, std::min({size, arrived, step}));
    if (self->first_is_complete(end)) self->pop_front(side);
    if (size > 0) co_await end.host->executor.yield();
  }
  co_return Result<void>();
}

// Ends.

bool SimConnection::closed(int side) const {
  const End& end = ends_[side];
  return end.closed || (end.broken && end.inbox.empty());
}

Error SimConnection::gone(int side) const {
  return Error(Code::kConnectionLost, ends_[side].peer.address + ": connection lost");
}

void SimConnection::wake(int side) {
  if (ends_[side].receiver) std::exchange(ends_[side].receiver, nullptr)->set(true);
}

void SimConnection::end_outgoing(int side, const Result<void>& outcome) {
  for (Outgoing& frame : from_[side].outgoing) {
    if (frame.sender) frame.sender->set(outcome);
  }
  from_[side].outgoing.clear();
  from_[side].full_since.reset();
  from_[side].outgoing_bytes = 0;
}

void SimConnection::close(int side, Error reason) {
  End& end = ends_[side];
  if (end.closed) return;
  end_outgoing(side, fail(reason));
  end.closed = std::move(reason);
  end.inbox.clear();
  end.opened = false;
  wake(side);
  from_[1 - side].wire.clear();
  from_[1 - side].dead = true;
  start_pump(1 - side);
  if (!std::exchange(from_[side].dead, true)) {
    Item item;
    item.breaks = true;
    put_on_wire(side, std::move(item), {});
  }
}

// The network gives the connection up, and tells this end.
void SimConnection::break_end(int side) {
  End& end = ends_[side];
  if (end.closed || end.broken) return;
  end.broken = true;
  from_[side].dead = true;
  end_outgoing(side, fail(gone(side)));
  wake(side);
}

void SimConnection::lose(int side) {
  ++context_->counters.lost;
  from_[side].dead = from_[1 - side].dead = true;
  Item item;
  item.breaks = true;
  put_on_wire(side, std::move(item), {});
  os::SimHost& sender = ends_[side].host->executor;
  sender.run_at(sender.now() + context_->latency(),
                [self = shared_from_this(), side] { self->break_end(side); });
}

void SimConnection::cut(int side) {
  ++context_->counters.cut;
  from_[side].dead = from_[1 - side].dead = true;
  Item item;
  item.breaks = true;
  put_on_wire(side, std::move(item), context_->up_to(context_->faults->late));
  os::SimHost& sender = ends_[side].host->executor;
  sender.run_at(sender.now() + context_->latency(),
                [self = shared_from_this(), side] { self->break_end(side); });
}

}  // namespace mooncake::net
