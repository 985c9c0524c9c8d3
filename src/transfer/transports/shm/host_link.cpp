#include "transfer/transports/shm/host_link.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace mooncake::transfer::shm {

namespace {

constexpr std::size_t kMostAsked = 64;  // pools that are on their way at once
constexpr std::uint64_t kWarmFirst = 64u
                                     << 20;  // bytes of a pool that are warm before its first use
constexpr base::Duration kWarmTime = std::chrono::milliseconds(2);  // and what else can be by then

// The first part at once, the rest in turn with other work.
Task<void> warm(os::Env env, std::shared_ptr<const HostPeer> host, std::shared_ptr<MappedPool> pool,
                os::UniqueFd fd) {
  os::MappingWarmer warmer(pool->memory(), fd.get());
  const TimePoint first_turn = env.now() + kWarmTime;
  bool more = true;
  while (more && (warmer.warm_to() < kWarmFirst || env.now() < first_turn))
    more = warmer.step();
  pool->set_warm(warmer.warm_to());
  while (more && host->alive()) {
    co_await env.executor.yield();
    more = warmer.step();
    pool->set_warm(warmer.warm_to());
  }
}

}  // namespace

HostLink::HostLink(const TransportContext& context, std::shared_ptr<MappingAccount> mappings,
                   std::shared_ptr<PatientThreads> threads, base::TaskGroup& tasks, Peer peer)
    : env_(context.env),
      peers_(context.peers),
      crew_(context.crew),
      direct_path_ended_(context.direct_path_ended),
      mappings_(std::move(mappings)),
      tasks_(tasks),
      remote_(std::move(peer)),
      opened_(env_.executor),
      welcomed_(env_.executor),
      patient_(env_.executor, std::move(threads)) {}

HostLink::~HostLink() { close(Error(Code::kCancelled)); }

Task<void> HostLink::open(TimePoint deadline) {
  auto connected = co_await connect(deadline);
  if (!connected) close(std::move(connected).error());
  opened_.set();
}

Task<Result<void>> HostLink::connect(TimePoint deadline) {
  const net::Bytes body = encode_open_host();
  net::CallOptions options;
  options.deadline = deadline;
  const auto reply =
      co_await peers_.control(remote_.address).call(net::Method::kOpenHost, body, options);
  if (!reply) co_return fail(reply.error());
  if (reply->peer.incarnation != remote_.incarnation) co_return fail(Code::kConnectionLost);
  MC_CO_TRY(const Invitation invitation, decode_invitation(reply->body));
  MC_CO_TRY(process_.socket, os::LocalSocket::connect(invitation.socket));
  MC_CO_CHECK(check_process());
  Hello hello;
  hello.token = invitation.token;
  MC_CO_CHECK(process_.socket.send(bytes_of(hello)));
  MC_CO_TRY(socket_watch_,
            net::FdWatch::start(env_.executor, process_.socket.fd(), [this] { read_all(); }));
  const bool in_time = co_await welcomed_.wait(deadline);
  if (!in_time) co_return fail(Code::kDeadlineExceeded, "no welcome");
  if (!host_) co_return fail(failure_);
  co_return Result<void>();
}

// Who listens there, as the kernel says: a pid is of use only while we hold its pidfd.
Result<void> HostLink::check_process() {
  MC_TRY(const auto peer, process_.socket.peer());
  if (peer.uid != ::geteuid()) {
    return fail(Code::kNotSupported, fmt::format("it runs as another user ({})", peer.uid));
  }
  if (peer.pid == 0) return fail(Code::kNotSupported, "it is in another pid namespace");
  MC_TRY(process_.handle, os::open_process(peer.pid));
  if (os::has_ended(process_.handle, process_.socket)) return fail(Code::kConnectionLost);
  process_.pid = peer.pid;
  return {};
}

void HostLink::read_all() {
  for (;;) {
    const os::LocalSocket& socket = host_ ? host_->socket() : process_.socket;
    auto message = socket.receive();
    if (!message && message.error().code() == Code::kBusy) return;
    const Result<void> done = message ? handle(*std::move(message)) : fail(message.error());
    if (!done) return close(done.error());
  }
}

Result<void> HostLink::handle(os::LocalSocket::Message message) {
  if (!host_) return take_welcome(message);
  if (const auto dropped = read<DropPool>(message.bytes)) {
    host_->drop_pool(dropped->pool);
    return {};
  }
  return take_pool(message);
}

Result<void> HostLink::take_welcome(const os::LocalSocket::Message& message) {
  const auto welcome = read<Welcome>(message.bytes);
  if (!welcome || message.fds.size() != 2) return fail(Code::kProtocolError, "no welcome");
  if (welcome->incarnation != static_cast<std::uint64_t>(remote_.incarnation)) {
    return fail(Code::kConnectionLost, "another engine answers");
  }
  MC_TRY(auto gate, memory::PeerGate::map(message.fds[0].get(), welcome->table_size,
                                          message.fds[1].get(), welcome->slots_size));
  MC_TRY(process_watch_, net::FdWatch::start(env_.executor, process_.handle.get(), [this] {
           close(Error(Code::kConnectionLost, "it has exited"));
         }));
  host_ = std::make_shared<HostPeer>(env_.executor.clock(), crew_, std::move(process_),
                                     std::move(gate), base::Incarnation{welcome->guest});
  welcomed_.set();
  return {};
}

Result<void> HostLink::take_pool(os::LocalSocket::Message& message) {
  const auto given = read<PoolGiven>(message.bytes);
  if (!given) return fail(Code::kProtocolError, "unknown message");
  const auto coming = pools_coming_.find(given->pool);
  if (coming == pools_coming_.end()) return fail(Code::kProtocolError, "a pool unasked");
  if (given->size == 0 || message.fds_lost) {
    // It is gone; or this process can have no more descriptors, and the other ways remain.
    host_->drop_pool(given->pool);
  } else if (message.fds.size() != 1) {
    return fail(Code::kProtocolError, "a pool without memory");
  } else {
    MC_CHECK(map_pool(*given, std::move(message.fds[0])));
  }
  coming->second->set();
  return {};
}

Result<void> HostLink::map_pool(const PoolGiven& given, os::UniqueFd fd) {
  using Use = os::SharedMapping::Use;
  const bool words = host_->holds_words(given.pool);
  auto memory = os::SharedMapping::map(fd.get(), given.size, words ? Use::kRead : Use::kReadWrite);
  if (!memory && memory.error().code() == Code::kProtocolError) {
    return fail(std::move(memory).error());
  }
  auto pool = memory ? MappedPool::open(mappings_, *std::move(memory))
                     : Result<std::shared_ptr<MappedPool>>(fail(std::move(memory).error()));
  if (!pool) {
    // Out of address space or mappings: the other ways remain.
    if (!std::exchange(warned_, true)) {
      base::log_warning("pool of {}: {}", remote_.name, pool.error().message());
    }
    host_->drop_pool(given.pool);
    return {};
  }
  host_->add_pool(given.pool, *pool);
  tasks_.start(warm(env_, host_, *pool, std::move(fd)));
  return {};
}

Task<Result<void>> HostLink::learn(std::vector<AskedRange> ranges, TimePoint deadline,
                                   os::CancelToken* cancel) {
  const std::shared_ptr<HostPeer> host = host_;
  if (!host) co_return fail(failure_);
  std::ranges::stable_partition(ranges, [](const AskedRange& range) { return range.guarded; });
  for (std::size_t at = 0, count = 0; at < ranges.size(); at += count) {
    count = 0;
    while (count < std::min(kMaxDescribed, ranges.size() - at) &&
           ranges[at + count].guarded == ranges[at].guarded) {
      ++count;
    }
    const auto asked = std::span(ranges).subspan(at, count);
    const net::Bytes body = encode_describe(asked);
    net::CallOptions options;
    options.deadline = deadline;
    options.cancel = cancel;
    const auto reply =
        co_await peers_.control(remote_.address).call(net::Method::kDescribeRegions, body, options);
    if (!reply) co_return fail(reply.error());
    if (reply->peer.incarnation != remote_.incarnation) co_return fail(Code::kConnectionLost);
    MC_CO_TRY(const auto regions, decode_described(reply->body, asked.size()));
    host->learn(regions);
  }
  // What others have asked for already, then what is new, a few at a time: a socket doesn't hold
  // many questions, nor answers that bring descriptors.
  std::vector<os::Event*> coming;
  for (const auto& [pool, event] : pools_coming_) {
    if (!event->is_set()) coming.push_back(event.get());
  }
  const std::vector<std::uint64_t> wanted = host->pools_wanted();
  for (std::size_t at = 0; at < wanted.size() || !coming.empty();) {
    for (os::Event* event : std::exchange(coming, {})) {
      const bool in_time = co_await event->wait(deadline, cancel);
      if (!in_time) co_return fail(why_left(cancel));
    }
    const auto few = std::span(wanted).subspan(at, std::min(kMostAsked, wanted.size() - at));
    at += few.size();
    if (few.empty()) break;
    if (!host_) co_return fail(failure_);
    coming = ask_pools(few);
  }
  co_return Result<void>();
}

// Events of those that nobody has asked for before.
std::vector<os::Event*> HostLink::ask_pools(std::span<const std::uint64_t> pools) {
  std::vector<os::Event*> coming;
  for (const std::uint64_t pool : pools) {
    const auto [at, is_new] =
        pools_coming_.try_emplace(pool, std::make_unique<os::Event>(env_.executor));
    if (!is_new) continue;
    AskPool ask;
    ask.pool = pool;
    const auto sent = host_->socket().send(bytes_of(ask));
    if (!sent) {
      // The peer stands still: this time it goes another way.
      at->second->set();
      host_->drop_pool(pool);
      continue;
    }
    coming.push_back(at->second.get());
  }
  return coming;
}

void HostLink::close(Error reason) {
  socket_watch_.reset();
  process_watch_.reset();
  failure_ = std::move(reason);
  failed_at_ = env_.now();
  if (const auto host = std::exchange(host_, nullptr)) {
    host->end();
    direct_path_ended_();  // its descriptors and mappings go with its last user
  }
  process_ = {};
  patient_.close();
  welcomed_.set();
  for (const auto& [pool, event] : pools_coming_)
    event->set();
}

}  // namespace mooncake::transfer::shm
