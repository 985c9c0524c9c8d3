#include "one_call.h"

#include <utility>

#include "base/ids.h"

namespace mooncake {

base::Task<Result<net::Reply>> call_once(os::Env env, net::Address master, std::string role,
                                         std::string secret, net::Method method, net::Bytes body,
                                         base::TimePoint deadline) {
  net::RpcClient::Options options;
  options.identity.name = role;
  options.identity.role = std::move(role);
  options.identity.boot_id = base::boot_id();
  options.identity.incarnation = env.random.incarnation();
  options.identity.cluster_secret = std::move(secret);
  const auto rpc = net::RpcClient::create(env, std::move(master), std::move(options));
  net::CallOptions call;
  call.deadline = deadline;
  Result<net::Reply> reply = co_await rpc->call(method, body, call);
  co_await rpc->stop();
  co_return reply;
}

}  // namespace mooncake
