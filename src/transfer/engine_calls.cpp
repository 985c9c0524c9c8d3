// What the engine has to say to a peer, and to ask, beside data.
#include <utility>

#include "transfer/engine_impl.h"

namespace mooncake::transfer {

// Sent once: an attempt that was cut off may have arrived. Only where nobody is reached, and the
// name leads elsewhere by now, there is another one.
Task<Result<void>> EngineImpl::notify(SegmentHandle target, Notification notification,
                                      TimePoint deadline, os::CancelToken* cancel) {
  MC_CO_CHECK(check_notification(notification));
  Segment* const segment = find_segment(target);
  if (!segment) co_return fail(Code::kSegmentNotFound);
  if (segment->peer.same_process) co_return inbox_.add(std::move(notification));
  const net::Bytes body = encode_notify(notification);
  net::CallOptions options;
  options.deadline = deadline;
  options.cancel = cancel;
  for (;;) {
    if (stopping_) co_return fail(Code::kCancelled, "the engine is closed");
    const net::Address asked = segment->peer.address;
    auto reply = co_await peers_->control(asked).call(net::Method::kNotify, body, options);
    if (reply) co_return Result<void>();
    Error error = std::move(reply).error().with_context("notify " + segment->peer.name);
    if (error.code() != Code::kUnreachable || !segment->found_by_name) co_return fail(error);
    co_await find_again(*segment, deadline, cancel);
    if (segment->peer.address == asked) co_return fail(error);
  }
}

Task<Result<void>> EngineImpl::notify_by_name(std::string name, Notification notification,
                                              TimePoint deadline, os::CancelToken* cancel) {
  MC_CO_TRY(const SegmentHandle target, co_await known_segment(std::move(name), deadline, cancel));
  co_return co_await notify(target, std::move(notification), deadline, cancel);
}

Task<Result<void>> EngineImpl::probe(std::string name, TimePoint deadline,
                                     os::CancelToken* cancel) {
  if (stopping_) co_return fail(Code::kNotReady, "the engine is closed");
  const auto known = handles_.find(name);
  if (known != handles_.end() && known->second == SegmentHandle::kLocal) co_return Result<void>();
  auto address = co_await find_address(name, deadline, cancel);
  if (!address) co_return fail(std::move(address).error());
  if (stopping_) co_return fail(Code::kCancelled, "the engine is closed");
  Segment& segment = *find_segment(handle_of(name, *address, true));
  peers_->forget_failures(segment.peer.address);
  const auto alive = co_await ask(segment, {}, deadline, cancel);
  if (!alive) co_return fail(Error(alive.error()).with_context("probe " + name));
  for (const auto& transport : transports_)
    transport->forget_failures(segment.peer);
  co_return Result<void>();
}

Task<Result<std::uint64_t>> EngineImpl::first_buffer(std::string name, TimePoint deadline,
                                                     os::CancelToken* cancel) {
  MC_CO_TRY(const SegmentHandle handle, co_await known_segment(name, deadline, cancel));
  Segment& segment = *find_segment(handle);
  std::uint64_t address = 0;
  if (segment.peer.same_process) {
    address = registry_.first_address();
  } else {
    MC_CO_TRY(const net::Bytes reply, co_await ask(segment, {}, deadline, cancel));
    MC_CO_TRY(address, decode_first_address(reply));
  }
  if (address == 0) {
    co_return fail(Code::kAddressNotRegistered, "'" + name + "' has no registered buffer");
  }
  co_return address;
}

}  // namespace mooncake::transfer
