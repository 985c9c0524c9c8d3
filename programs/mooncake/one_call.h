// One call to a Master, as a program that asks a single question makes it.
#pragma once

#include <string>

#include "base/task.h"
#include "net/address.h"
#include "net/rpc.h"
#include "os/env.h"

namespace mooncake {

// `role` is how the Master's log calls us. Ends by the deadline.
base::Task<Result<net::Reply>> call_once(os::Env env, net::Address master, std::string role,
                                         std::string secret, net::Method method, net::Bytes body,
                                         base::TimePoint deadline);

}  // namespace mooncake
