#include "store/client/master_link.h"

#include <fmt/format.h>

#include <algorithm>

namespace mooncake::store {

namespace {

constexpr base::Duration kFirstPause = std::chrono::milliseconds(5);
constexpr base::Duration kLongestPause = std::chrono::milliseconds(200);

bool worth_repeating(Code code) {
  switch (code) {
    case Code::kUnreachable:
    case Code::kConnectionLost:
    case Code::kStaleEpoch:  // the refusal taught us the new epoch
    case Code::kBusy:
      return true;
    default:
      return false;
  }
}

net::RpcClient::Options rpc_options(net::Identity identity, base::Epoch* epoch, bool rings) {
  net::RpcClient::Options options;
  options.rings = rings;
  options.identity = std::move(identity);
  options.epoch = epoch;
  return options;
}

}  // namespace

MasterLink::MasterLink(os::Env env, std::string master_name, net::RpcClient::Connector connector,
                       net::Identity identity, bool rings)
    : env_(env),
      master_name_(std::move(master_name)),
      rpc_(net::RpcClient::create(env, std::move(connector),
                                  rpc_options(std::move(identity), &epoch_, rings))) {}

Task<Result<net::Bytes>> MasterLink::call_once(net::Method method, const net::Bytes& body,
                                               TimePoint deadline) {
  net::CallOptions options;
  options.deadline = deadline;
  Result<net::Reply> reply = co_await rpc_->call(method, body, options);
  if (!reply) {
    co_return fail(std::move(reply).error().with_context(fmt::format("Master {}", master_name_)));
  }
  co_return std::move(reply->body);
}

Task<Result<net::Bytes>> MasterLink::call(net::Method method, net::Bytes body, TimePoint deadline) {
  base::Duration pause = kFirstPause;
  const std::uint64_t interrupts = interrupts_;
  while (true) {
    Result<net::Bytes> reply = co_await call_once(method, body, deadline);
    if (reply || !worth_repeating(reply.error().code())) co_return reply;
    const base::Duration asked = std::chrono::milliseconds(reply.error().retry_after_ms());
    const base::Duration wait = std::max(
        asked,
        pause / 2 + base::Duration(env_.random.below(static_cast<std::uint64_t>(pause.count()))));
    if (env_.now() + wait >= deadline) co_return reply;
    co_await env_.executor.sleep_for(wait);
    if (interrupts_ != interrupts) co_return fail(Code::kCancelled, "interrupted");
    pause = std::min(pause * 2, kLongestPause);
    ++repeated_;
  }
}

void MasterLink::interrupt() {
  ++interrupts_;
  rpc_->cancel_calls();
}

}  // namespace mooncake::store
