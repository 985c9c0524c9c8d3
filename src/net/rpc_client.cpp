#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <utility>

#include "net/rpc.h"
#include "net/rpc_codec.h"
#include "os/user_memory.h"

namespace mooncake::net {
namespace {

struct Link;
class Client;

// Between processes of one host it is done at once, or not worth waiting for.
constexpr base::Duration kRingTime = std::chrono::seconds(1);
// How often a call goes out again because its server needed the place of the connection.
constexpr int kMaxRepeats = 3;

// A call, shared by whoever still has something to do for it. `ended` is set in the same turn in
// which the caller's memory gets out of reach; the caller returns later.
struct Call {
  Call(Client& client_, os::Executor& executor, Method method_, base::ConstBuffer body_,
       const CallOptions& options_)
      : client(client_), method(method_), body(body_), options(options_), done(executor) {}

  Client& client;
  const Method method;
  base::ConstBuffer body;  // the caller's, as are the buffers in `options`
  CallOptions options;
  std::uint32_t id = 0;
  os::TimerId timer = os::TimerId::kNone;
  std::shared_ptr<Link> link;  // set when it has been sent
  int repeats = 0;
  bool ended = false;
  os::Completion<Result<Reply>> done;

  std::size_t room_index = 0;   // the buffer of data_room that is being filled
  std::size_t room_offset = 0;  // in it
  std::size_t received = 0;
  std::size_t room() const {
    std::size_t size = 0;
    for (const base::MutableBuffer& buffer : options.data_room)
      size += buffer.size();
    return size;
  }
};

// One connection, kept by its reader, its senders and the client.
struct Link {
  Link(std::unique_ptr<Channel> channel_, PeerIdentity peer_)
      : channel(std::move(channel_)), peer(std::move(peer_)) {}
  std::unique_ptr<Channel> channel;
  PeerIdentity peer;
  DiscardSink discard;
  bool answered = false;        // at least once
  bool dismissed = false;       // the server has begun nothing that is in flight, and won't
  base::TimePoint last_used{};  // a call ended
  os::TimerId idle_timer = os::TimerId::kNone;
};

// The call's data while it lasts, zeros afterwards.
class CallSource final : public PayloadSource {
 public:
  explicit CallSource(const Call& call) : call_(call), data_(call.options.data) {}
  base::ConstBuffer next(std::size_t remaining) override {
    static constexpr std::array<std::byte, 4096> kZeros{};
    if (call_.ended) return base::ConstBuffer(kZeros).first(std::min(remaining, kZeros.size()));
    return data_.next(remaining);
  }
  std::size_t next_all(std::size_t remaining, std::span<base::ConstBuffer> pieces) override {
    if (!call_.ended) return data_.next_all(remaining, pieces);
    pieces.front() = next(remaining);
    return 1;
  }
  bool live() const override { return !call_.ended; }

 private:
  const Call& call_;
  BufferSource data_;
};

// The call's room while it lasts, scratch memory afterwards.
class CallSink final : public PayloadSink {
 public:
  CallSink(Call& call, DiscardSink& discard) : call_(call), discard_(discard) {}
  std::span<std::byte> prepare(std::size_t remaining) override {
    std::span<std::byte> place;
    prepare_all(remaining, {&place, 1});
    return place;
  }
  std::size_t prepare_all(std::size_t remaining, std::span<std::span<std::byte>> places) override {
    if (call_.ended) {
      places.front() = discard_.prepare(remaining);
      return 1;
    }
    std::size_t count = 0;
    std::size_t offset = call_.room_offset;
    for (auto i = call_.room_index; remaining > 0 && count < places.size(); ++i) {
      const base::MutableBuffer rest = call_.options.data_room[i].subspan(std::exchange(offset, 0));
      if (rest.empty()) continue;
      places[count] = rest.first(std::min(rest.size(), remaining));
      remaining -= places[count++].size();
    }
    return count;
  }
  bool fills_user_memory() const override { return true; }
  void lose() override;
  void commit(std::size_t size) override {
    if (call_.ended) return;
    call_.received += size;
    call_.room_offset += size;
    while (call_.room_index < call_.options.data_room.size() &&
           call_.room_offset >= call_.options.data_room[call_.room_index].size()) {
      call_.room_offset -= call_.options.data_room[call_.room_index++].size();
    }
  }

 private:
  Call& call_;
  DiscardSink& discard_;
};

class Client final : public RpcClient {
 public:
  Client(os::Env env, Connector connector, std::string target, Options options)
      : env_(env),
        connector_(std::move(connector)),
        target_(std::move(target)),
        options_(std::move(options)) {}
  ~Client() override { assert(callers_ == 0 && tasks_.running() == 0 && "await stop() first"); }

  Task<Result<Reply>> call(Method method, base::ConstBuffer body, CallOptions options) override;
  void cancel_calls() override;
  void forget_failures() override;
  bool connected() const override { return link_ && !link_->channel->closed(); }
  bool idle() const override { return callers_ == 0; }
  void on_disconnect(std::function<void()> callback) override {
    on_disconnect_ = std::move(callback);
  }
  Task<void> stop() override;

  // For what has a call in hand.
  void end_unwritable(Call& call);

 private:
  Result<void> admit(const CallOptions& options) const;
  void add(const std::shared_ptr<Call>& call);
  void end(Call& call, Result<Reply> result);
  void end_all(const std::shared_ptr<Link>& link, const Error& error);
  void end_every(const Error& error);
  void end_late(Call& call);
  void end_cancelled(Call& call);
  FrameHeader header_of(const Call& call, std::uint16_t flags) const;
  void send(const std::shared_ptr<Call>& call);
  Task<void> send_data(std::shared_ptr<Call> call, std::size_t size);

  Task<void> connect();
  Task<Result<std::shared_ptr<Link>>> connect_once();
  Task<std::unique_ptr<Channel>> go_over_to_rings(PeerIdentity peer);
  Task<void> wait_for_backoff();
  void failed(const Error& error);

  Task<void> serve(std::shared_ptr<Link> link);
  void send_again(const Link& link);
  void watch_idle(Link& link);
  void leave_if_idle();
  Task<Error> read(std::shared_ptr<Link> link);
  Task<Result<void>> read_frame(std::shared_ptr<Link> link, FrameHeader header);
  Task<Result<void>> read_data(std::shared_ptr<Link> link, FrameHeader header,
                               std::shared_ptr<Call> call);
  std::shared_ptr<Call> find(const FrameHeader& header, const std::shared_ptr<Link>& link) const;

  const os::Env env_;
  const Connector connector_;
  const std::string target_;
  const Options options_;
  std::function<void()> on_disconnect_;

  std::map<std::uint32_t, std::shared_ptr<Call>> calls_;  // not ended; those without link wait
  std::uint32_t next_id_ = 1;
  std::size_t callers_ = 0;  // call() tasks that have not returned

  std::shared_ptr<Link> link_;
  Channel* greeting_ = nullptr;
  os::Completion<bool>* backing_off_ = nullptr;
  bool connecting_ = false;
  bool stopping_ = false;
  base::Duration backoff_{};
  base::TimePoint next_attempt_{};
  std::string last_failure_;  // to connect; for the error of a call that waits for the next attempt
  base::TaskGroup tasks_;
};

void CallSink::lose() { call_.client.end_unwritable(call_); }

// Calls.

Result<void> Client::admit(const CallOptions& options) const {
  if (stopping_) return fail(Code::kCancelled, "client of " + target_ + " has been stopped");
  if (options.deadline <= env_.now()) return fail(Code::kDeadlineExceeded, "before it was sent");
  if (os::is_cancelled(options.cancel)) {
    return fail(Code::kCancelled, "call to " + target_ + " before it was sent");
  }
  if (calls_.size() >= options_.max_requests_in_flight) {
    return fail(
        Error(Code::kBusy, fmt::format("{} requests to {} are in flight", calls_.size(), target_))
            .with_retry_after(1));
  }
  return {};
}

Task<Result<Reply>> Client::call(Method method, base::ConstBuffer body, CallOptions options) {
  MC_CO_CHECK(admit(options));
  auto call = std::make_shared<Call>(*this, env_.executor, method, body, options);
  ++callers_;
  leave_if_idle();  // the timer may be late, of a process that was stopped for a while
  add(call);
  os::CancelToken::Watch watch(
      options.cancel, [given_up = call.get()] { given_up->client.end_cancelled(*given_up); });
  Result<Reply> result = co_await call->done;
  --callers_;
  co_return result;
}

void Client::add(const std::shared_ptr<Call>& call) {
  while (calls_.contains(next_id_) || next_id_ == 0)
    ++next_id_;
  call->id = next_id_++;
  calls_.emplace(call->id, call);
  // The timer is cancelled when the call ends, and call() holds it until then.
  call->timer = env_.executor.run_at(call->options.deadline,
                                     [late = call.get()] { late->client.end_late(*late); });
  if (connected()) {
    send(call);
  } else if (!std::exchange(connecting_, true)) {
    tasks_.start(connect());
  }
}

// The one place where a call ends. From here on nothing of the caller's is read or written.
void Client::end(Call& call, Result<Reply> result) {
  if (std::exchange(call.ended, true)) return;
  call.body = {};
  call.options.data = {};
  call.options.data_room = {};
  env_.executor.cancel(call.timer);
  if (call.link) call.link->last_used = env_.now();
  call.done.set(std::move(result));
  calls_.erase(call.id);
}

void Client::end_late(Call& call) {
  end(call, fail(Code::kDeadlineExceeded,
                 fmt::format("method {:#06x} to {}{}", static_cast<unsigned>(call.method), target_,
                             call.link ? "" : ": not connected" + last_failure_)));
}

void Client::end_unwritable(Call& call) {
  end(call, fail(Code::kInvalidArgument, "the room for the data can't be written"));
}

void Client::end_cancelled(Call& call) {
  end(call, fail(Code::kCancelled,
                 fmt::format("method {:#06x} to {}", static_cast<unsigned>(call.method), target_)));
}

// Those of one connection, or with null those that wait for one.
void Client::end_all(const std::shared_ptr<Link>& link, const Error& error) {
  std::vector<std::shared_ptr<Call>> affected;
  for (const auto& [id, call] : calls_) {
    if (call->link == link) affected.push_back(call);
  }
  for (const std::shared_ptr<Call>& call : affected)
    end(*call, fail(error));
}

FrameHeader Client::header_of(const Call& call, std::uint16_t flags) const {
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(call.method);
  header.flags = flags;
  header.request_id = call.id;
  header.deadline_us = remaining_us(env_.now(), call.options.deadline);
  header.epoch = options_.epoch ? static_cast<std::uint32_t>(*options_.epoch) : 0;
  header.incarnation = static_cast<std::uint64_t>(options_.identity.incarnation);
  header.trace_id = call.options.trace_id;
  return header;
}

void Client::send(const std::shared_ptr<Call>& call) {
  call->link = link_;
  Channel& channel = *link_->channel;
  const std::size_t size = base::total_size(call->options.data);
  Bytes data;
  if (size > 0 && size <= kCopiedData) {
    data.resize(size);
    if (!os::gather_from_user(data.data(), call->options.data)) {
      return end(*call, fail(Code::kInvalidArgument, "the data can't be read"));
    }
  }
  Result<void> sent = channel.send(header_of(*call, size > 0 ? kMore : 0), {&call->body, 1});
  if (sent && size > kCopiedData) return tasks_.start(send_data(call, size));
  if (sent && size > 0) {
    const base::ConstBuffer part(data);
    sent = channel.send(header_of(*call, kData | kMore), {&part, 1});
    if (sent) sent = channel.send(header_of(*call, kData), {});
    // A message without its end would keep the server waiting.
    if (!sent) channel.close(sent.error());
  }
  if (!sent) end(*call, fail(std::move(sent).error()));
}

// Goes on when the call has ended: what was begun must be ended, with zeros, and called off.
Task<void> Client::send_data(std::shared_ptr<Call> call, std::size_t size) {
  const std::shared_ptr<Link> link = call->link;
  CallSource source(*call);
  while (size > 0 && !call->ended) {
    const std::size_t step = std::min<std::size_t>(size, kMaxDataPayload);
    Result<void> sent =
        co_await link->channel->send_from(header_of(*call, kData | kMore), source, step);
    if (!sent) co_return;  // the connection is gone, and with it the call
    size -= step;
  }
  const std::uint16_t flags = call->ended ? kData | kAbandon : kData;
  Result<void> sent = link->channel->send(header_of(*call, flags), {});
  if (!sent) link->channel->close(sent.error());
}

// Connecting.

// Runs until there is a connection, or nobody waits for one. An attempt that fails ends the calls
// that waited for it: they may have another place to go, and the deadline is not ours to use up.
Task<void> Client::connect() {
  while (!stopping_ && !calls_.empty()) {
    co_await wait_for_backoff();
    if (stopping_ || calls_.empty()) break;
    Result<std::shared_ptr<Link>> link = co_await connect_once();
    if (!link) {
      failed(link.error());
      continue;
    }
    if (stopping_) {
      (*link)->channel->close(Error(Code::kCancelled, "client stopped"));
      break;
    }
    link_ = *link;
    last_failure_.clear();
    std::vector<std::shared_ptr<Call>> waiting;
    for (const auto& [id, call] : calls_)
      waiting.push_back(call);
    for (const std::shared_ptr<Call>& call : waiting) {
      if (!call->ended) send(call);
    }
    connecting_ = false;
    tasks_.start(serve(link_));
    co_return;
  }
  connecting_ = false;
}

Task<Result<std::shared_ptr<Link>>> Client::connect_once() {
  const base::TimePoint deadline = env_.now() + options_.connect_timeout;
  MC_CO_TRY(std::unique_ptr<Channel> channel, co_await connector_(deadline));
  if (stopping_) co_return fail(Code::kCancelled, "client stopped");
  greeting_ = channel.get();
  Result<PeerIdentity> peer = co_await greet(env_, *channel, options_.identity, target_, deadline);
  greeting_ = nullptr;
  if (!peer) co_return fail(std::move(peer).error());
  if (std::unique_ptr<Channel> rings = co_await go_over_to_rings(*peer)) channel = std::move(rings);
  if (stopping_) co_return fail(Code::kCancelled, "client stopped");
  auto link = std::make_shared<Link>(std::move(channel), *std::move(peer));
  link->last_used = env_.now();
  co_return link;
}

// Null when there are none, or they lead to somebody else.
Task<std::unique_ptr<Channel>> Client::go_over_to_rings(PeerIdentity peer) {
  if (!options_.rings || peer.rings.empty() || stopping_ || !peer.boot_id.valid() ||
      peer.boot_id != options_.identity.boot_id) {
    co_return nullptr;
  }
  const Address at(peer.rings, 0);
  const base::TimePoint deadline = env_.now() + kRingTime;
  if (!is_ring(at)) co_return nullptr;
  Result<std::unique_ptr<Channel>> channel = co_await env_.network.connect(at, deadline);
  if (!channel || stopping_) co_return nullptr;
  greeting_ = channel->get();
  Result<PeerIdentity> there =
      co_await greet(env_, **channel, options_.identity, target_, deadline);
  greeting_ = nullptr;
  if (!there || there->incarnation != peer.incarnation) co_return nullptr;
  co_return *std::move(channel);
}

Task<void> Client::wait_for_backoff() {
  if (next_attempt_ <= env_.now()) co_return;
  os::Completion<bool> over(env_.executor);
  const os::TimerId timer = env_.executor.run_at(next_attempt_, [&over] { over.set(true); });
  backing_off_ = &over;
  co_await over;
  backing_off_ = nullptr;
  env_.executor.cancel(timer);
}

// Between half and the whole of the backoff, so that clients of a restarted server come one by one.
void Client::failed(const Error& error) {
  backoff_ = std::clamp(2 * backoff_, options_.backoff_min, options_.backoff_max);
  const base::Duration asked = std::chrono::milliseconds(error.retry_after_ms());
  const auto half = static_cast<std::uint64_t>(backoff_.count()) / 2;
  const base::Duration jitter(static_cast<std::int64_t>(half + env_.random.below(half + 1)));
  next_attempt_ = env_.now() + std::max(jitter, std::min(asked, options_.backoff_max));
  last_failure_ = ", the last attempt: " + error.message();
  end_all(nullptr, error);
}

// The timer is not moved with each call; it looks at when the last one ended.
void Client::watch_idle(Link& link) {
  const base::TimePoint since = calls_.empty() ? link.last_used : env_.now();
  link.idle_timer = env_.executor.run_at(since + options_.idle_timeout, [this, &link] {
    link.idle_timer = os::TimerId::kNone;
    leave_if_idle();
    if (!link.channel->closed()) watch_idle(link);
  });
}

void Client::leave_if_idle() {
  if (!connected() || !calls_.empty()) return;
  if (env_.now() - link_->last_used < options_.idle_timeout) return;
  link_->channel->close(Error(Code::kConnectionLost, "not used for long"));
}

// Replies.

Task<void> Client::serve(std::shared_ptr<Link> link) {
  watch_idle(*link);
  const Error reason = co_await read(link);
  env_.executor.cancel(link->idle_timer);
  link->channel->close(reason);
  if (link_ == link) link_.reset();
  if (!link->answered) {
    backoff_ = std::clamp(2 * backoff_, options_.backoff_min, options_.backoff_max);
    next_attempt_ = env_.now() + backoff_;
  }
  const Error lost = reason.code() == Code::kConnectionLost || stopping_
                         ? reason
                         : Error(Code::kConnectionLost, reason.message());
  if (link->dismissed) send_again(*link);
  end_all(link, lost);
  if (on_disconnect_) on_disconnect_();
}

// On the next connection.
void Client::send_again(const Link& link) {
  bool some = false;
  for (const auto& [id, call] : calls_) {
    if (call->link.get() != &link || call->received > 0 || call->repeats == kMaxRepeats) continue;
    ++call->repeats;
    call->link.reset();
    some = true;
  }
  if (some && !std::exchange(connecting_, true)) tasks_.start(connect());
}

Task<Error> Client::read(std::shared_ptr<Link> link) {
  for (;;) {
    Result<FrameHeader> header = co_await link->channel->receive();
    if (!header) co_return std::move(header).error();
    if ((header->flags & kReply) == 0) {
      co_return Error(Code::kProtocolError, fmt::format("{} sent a request to a client", target_));
    }
    if (options_.epoch && header->epoch > static_cast<std::uint32_t>(*options_.epoch)) {
      *options_.epoch = static_cast<base::Epoch>(header->epoch);
    }
    if (header->method == static_cast<std::uint16_t>(Method::kGoodbye) && header->request_id == 0) {
      link->dismissed = true;
      co_return Error(Code::kConnectionLost, target_ + " gave the connection's place to another");
    }
    Result<void> read = co_await read_frame(link, *header);
    if (!read) co_return std::move(read).error();
  }
}

std::shared_ptr<Call> Client::find(const FrameHeader& header,
                                   const std::shared_ptr<Link>& link) const {
  auto found = calls_.find(header.request_id);
  if (found == calls_.end() || found->second->link != link) return nullptr;
  return found->second;
}

Task<Result<void>> Client::read_frame(std::shared_ptr<Link> link, FrameHeader header) {
  std::shared_ptr<Call> call = find(header, link);
  if (!call)
    co_return co_await discard_payload(*link->channel, link->discard, header.payload_length);
  if ((header.flags & kData) != 0) co_return co_await read_data(link, header, call);
  MC_CO_TRY(Bytes body, co_await receive_body(*link->channel, header.payload_length));
  link->answered = true;
  backoff_ = {};
  if (call->ended) co_return Result<void>();
  if ((header.flags & kError) != 0) {
    end(*call, fail(decode_error(body)));
    co_return Result<void>();
  }
  Reply reply;
  reply.body = std::move(body);
  reply.data_bytes = call->received;
  reply.peer = link->peer;
  reply.epoch = static_cast<base::Epoch>(header.epoch);
  end(*call, std::move(reply));
  co_return Result<void>();
}

Task<Result<void>> Client::read_data(std::shared_ptr<Link> link, FrameHeader header,
                                     std::shared_ptr<Call> call) {
  const std::size_t room = call->room() - call->received;
  if (header.payload_length > room) {
    end(*call, fail(Code::kProtocolError, fmt::format("{}: {} bytes of data, {} have room", target_,
                                                      header.payload_length, room)));
  }
  CallSink sink(*call, link->discard);
  co_return co_await discard_payload(*link->channel, sink, header.payload_length);
}

void Client::end_every(const Error& error) {
  std::vector<std::shared_ptr<Call>> calls;
  for (const auto& [id, call] : calls_)
    calls.push_back(call);
  for (const std::shared_ptr<Call>& call : calls)
    end(*call, fail(error));
}

void Client::cancel_calls() {
  end_every(Error(Code::kCancelled, "call to " + target_ + " has been cancelled"));
}

void Client::forget_failures() {
  backoff_ = {};
  next_attempt_ = {};
  if (backing_off_) backing_off_->set(true);
}

Task<void> Client::stop() {
  stopping_ = true;
  const Error stopped(Code::kCancelled, "client of " + target_ + " has been stopped");
  end_every(stopped);
  if (backing_off_) backing_off_->set(false);
  if (greeting_) greeting_->close(stopped);
  if (link_) link_->channel->close(stopped);
  co_await tasks_.join();
  while (callers_ > 0)
    co_await env_.executor.yield();  // their resumption is in the queue
}

}  // namespace

std::unique_ptr<RpcClient> RpcClient::create(os::Env env, Address server, Options options) {
  std::string target = to_string(server);
  Connector connector = [env, server = std::move(server)](base::TimePoint deadline) {
    return env.network.connect(server, deadline);
  };
  return std::make_unique<Client>(env, std::move(connector), std::move(target), std::move(options));
}

std::unique_ptr<RpcClient> RpcClient::create(os::Env env, Connector connector, Options options) {
  return std::make_unique<Client>(env, std::move(connector), "peer", std::move(options));
}

}  // namespace mooncake::net
