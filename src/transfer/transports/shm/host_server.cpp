#include "transfer/transports/shm/host_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/log.h"
#include "base/random.h"

namespace mooncake::transfer::shm {

namespace {

constexpr base::Duration kTokenTime = std::chrono::seconds(5);
constexpr base::Duration kStopTime = std::chrono::seconds(2);
constexpr base::Duration kStopInterval = std::chrono::milliseconds(1);
constexpr base::Duration kLateInterval = std::chrono::milliseconds(2);
constexpr std::size_t kMaxLate = 1u << 18;  // messages that one process has not read
constexpr std::size_t kMaxTokens = 1024;
constexpr std::size_t kMaxOfPeer = 16;  // sessions, and invitations, of one engine
constexpr std::size_t kMaxSessions = 1024;
constexpr std::size_t kMaxSilent = 64;  // sessions without a hello

Task<Result<net::Bytes>> at_once(Result<net::Bytes> result) { co_return result; }

}  // namespace

// One process that has connected.
struct HostServer::Session {
  os::LocalSocket socket;
  os::UniqueFd process;
  std::unique_ptr<net::FdWatch> socket_watch, process_watch;
  std::shared_ptr<memory::Gate::Peer> slots;  // once it was welcomed
  GuestId guest{};                            // with slots
  std::deque<Late> late;                      // not sent yet
};

HostServer::HostServer(const TransportContext& context)
    : context_(context), guests_(context.identity) {
  context_.server.handle(net::Method::kOpenHost,
                         [this](net::ServerCall& call) { return at_once(invite(call)); });
}

HostServer::~HostServer() { *here_ = false; }

Result<void> HostServer::start() {
  if (!context_.identity.boot_id.valid()) {
    return fail(Code::kNotSupported, "the kernel does not say which boot this is");
  }
  name_ =
      fmt::format("mooncake-{:016x}-{:016x}",
                  static_cast<std::uint64_t>(context_.identity.incarnation), base::secure_random());
  MC_TRY(listener_, os::LocalSocket::listen(name_));
  MC_TRY(listener_watch_,
         net::FdWatch::start(context_.env.executor, listener_.fd(), [this] { accept_all(); }));
  MC_TRY(gate_, memory::Gate::create());
  context_.registry.use_gate(gate_);
  writes_ = std::make_unique<HostWrites>(context_, gate_, guests_);
  pins_ = std::make_unique<HostPins>(context_, guests_);
  context_.registry.on_unshared(
      [this, here = here_, &executor = context_.env.executor](std::uint64_t pool) {
        executor.post([this, here, pool] {
          if (*here) tell_dropped(pool);
        });
      });
  return {};
}

Task<void> HostServer::stop() {
  listener_watch_.reset();
  if (!gate_) co_return;
  gate_->close();
  const TimePoint limit = context_.env.now() + kStopTime;
  while (!gate_->is_clear() && context_.env.now() < limit)
    co_await context_.env.executor.sleep_for(kStopInterval);
  if (!gate_->is_clear()) {
    base::log_warning("{}: a process of this host stands still in the middle of a copy",
                      context_.identity.name);
  }
  sessions_.clear();
  context_.registry.on_unshared({});
}

void HostServer::drop_old_tokens() {
  const TimePoint now = context_.env.now();
  std::erase_if(tokens_, [&](const auto& token) { return token.second.until < now; });
}

// The oldest makes room: whoever asks again and again is in the way of himself.
void HostServer::drop_tokens_of(base::Incarnation peer) {
  std::size_t count = 0;
  auto oldest = tokens_.end();
  for (auto it = tokens_.begin(); it != tokens_.end(); ++it) {
    if (it->second.peer != peer) continue;
    ++count;
    if (oldest == tokens_.end() || it->second.until < oldest->second.until) oldest = it;
  }
  if (count >= kMaxOfPeer) tokens_.erase(oldest);
}

Result<net::Bytes> HostServer::invite(const net::ServerCall& call) {
  if (!gate_ || call.peer().boot_id != context_.identity.boot_id) {
    return fail(Code::kNotSupported, "only for processes of this host");
  }
  drop_old_tokens();
  const base::Incarnation peer = call.peer().incarnation;
  if (guests_.of(peer) >= kMaxOfPeer) {
    return fail(Code::kBusy, fmt::format("this engine has {} sessions here", kMaxOfPeer));
  }
  drop_tokens_of(peer);
  if (tokens_.size() >= kMaxTokens || sessions_.size() >= kMaxSessions) return fail(Code::kBusy);
  Invitation invitation;
  invitation.socket = name_;
  base::secure_random(std::as_writable_bytes(std::span(invitation.token)));
  tokens_.emplace(invitation.token, Invited{peer, context_.env.now() + kTokenTime});
  return encode_invitation(invitation);
}

std::optional<base::Incarnation> HostServer::take_token(const Token& token) {
  drop_old_tokens();
  const auto found = tokens_.find(token);
  if (found == tokens_.end()) return std::nullopt;
  const base::Incarnation peer = found->second.peer;
  tokens_.erase(found);
  return peer;
}

void HostServer::accept_all() {
  for (;;) {
    auto socket = listener_.accept();
    if (!socket) return;
    const auto peer = socket->peer();
    if (!peer || peer->uid != ::geteuid() || sessions_.size() >= kMaxSessions) continue;
    drop_silent_sessions();
    auto session = std::make_unique<Session>();
    session->socket = *std::move(socket);
    const Place place = sessions_.insert(sessions_.end(), std::move(session));
    auto watch = net::FdWatch::start(context_.env.executor, (*place)->socket.fd(),
                                     [this, place] { read_all(place); });
    if (watch) {
      (*place)->socket_watch = *std::move(watch);
    } else {
      sessions_.erase(place);
    }
  }
}

// Those that never say who they are must not keep out others.
void HostServer::drop_silent_sessions() {
  std::size_t silent = 0;
  for (auto it = sessions_.end(); it != sessions_.begin();) {
    const Place place = --it;
    if ((*place)->slots || ++silent < kMaxSilent) continue;
    it = sessions_.erase(place);
  }
}

void HostServer::read_all(Place place) {
  Session& session = **place;
  for (;;) {
    auto message = session.socket.receive();
    if (!message && message.error().code() == Code::kBusy) return;
    Result<void> done = message ? answer(session, *message) : fail(message.error());
    if (!done) return end(place, done.error());
    // A welcomed process is watched from here on: its exit ends what its slots say.
    if (session.process && !session.process_watch) {
      auto watch = net::FdWatch::start(context_.env.executor, session.process.get(), [this, place] {
        end(place, Error(Code::kConnectionLost, "process exited"));
      });
      if (!watch) return end(place, watch.error());
      session.process_watch = *std::move(watch);
    }
  }
}

Result<void> HostServer::answer(Session& session, const os::LocalSocket::Message& message) {
  if (!session.slots) {
    const auto hello = read<Hello>(message.bytes);
    if (!hello) return fail(Code::kProtocolError, "no hello");
    return welcome(session, *hello);
  }
  const auto asked = read<AskPool>(message.bytes);
  if (!asked) return fail(Code::kProtocolError, "unknown message");
  return tell(session, {asked->pool, false});
}

Result<void> HostServer::welcome(Session& session, const Hello& hello) {
  const auto invited = take_token(hello.token);
  if (!invited) return fail(Code::kAuthenticationFailed, "no such invitation");
  MC_TRY(const auto peer, session.socket.peer());
  if (peer.uid != ::geteuid() || peer.pid == 0) {
    return fail(Code::kNotSupported, fmt::format("user {}, pid {}", peer.uid, peer.pid));
  }
  MC_TRY(session.process, os::open_process(peer.pid));
  if (os::has_ended(session.process, session.socket)) return fail(Code::kConnectionLost);
  MC_TRY(session.slots, gate_->add_peer());
  session.guest = guests_.admit(*invited);
  Welcome welcome;
  welcome.incarnation = static_cast<std::uint64_t>(context_.identity.incarnation);
  welcome.table_size = gate_->table_size();
  welcome.slots_size = session.slots->size();
  welcome.guest = static_cast<std::uint64_t>(session.guest);
  const std::array fds{gate_->table_fd(), session.slots->fd()};
  return session.socket.send(bytes_of(welcome), fds);
}

Result<void> HostServer::send(Session& session, const Late& message) {
  if (message.dropped) {
    DropPool dropped;
    dropped.pool = message.pool;
    return session.socket.send(bytes_of(dropped));
  }
  PoolGiven given;
  given.pool = message.pool;
  const auto memory = context_.registry.pool_memory(message.pool);
  if (!memory) return session.socket.send(bytes_of(given));
  given.size = memory->size;
  const std::array fds{memory->fd.get()};
  return session.socket.send(bytes_of(given), fds);
}

Result<void> HostServer::tell(Session& session, Late message) {
  auto sent = session.late.empty() ? send(session, message) : fail(Code::kBusy);
  if (sent || sent.error().code() != Code::kBusy) return sent;
  if (session.late.size() >= kMaxLate) return fail(Code::kBusy, "it does not read");
  session.late.push_back(message);
  if (std::exchange(sends_late_, true)) return {};
  context_.env.executor.run_at(context_.env.now() + kLateInterval, [this, here = here_] {
    if (*here) send_late();
  });
  return {};
}

void HostServer::send_late() {
  sends_late_ = false;
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const Place place = it++;
    for (auto late = std::exchange((*place)->late, {}); !late.empty(); late.pop_front()) {
      const auto told = tell(**place, late.front());
      if (told) continue;
      end(place, told.error());
      break;
    }
  }
}

void HostServer::tell_dropped(std::uint64_t pool) {
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const Place place = it++;
    if (!(*place)->slots || !(*place)->socket) continue;
    const auto told = tell(**place, {pool, true});
    if (!told) end(place, told.error());
  }
}

// Its process has exited or closed the connection, which it does after its last copy; or it is one
// that we don't talk to any more, and then it is not yet known whether it is inside.
void HostServer::end(Place place, const Error& reason) {
  Session& session = **place;
  if (reason.code() != Code::kConnectionLost) {
    base::log_warning("{}: a process of this host is refused: {}", context_.identity.name,
                      reason.message());
    context_.counters.refused_ranges.add();
  }
  session.socket_watch.reset();
  session.socket = {};
  session.late.clear();
  const bool copies_no_more = reason.code() == Code::kConnectionLost;
  if (session.slots && !copies_no_more) return;  // until its exit
  if (session.slots) {
    gate_->remove_peer(session.slots);
    guests_.dismiss(session.guest);
    writes_->end_all(session.guest);
    pins_->end_all(session.guest);
  }
  sessions_.erase(place);
}

}  // namespace mooncake::transfer::shm
