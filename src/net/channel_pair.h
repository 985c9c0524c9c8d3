// Both ends of a connection inside one process: a Store with its embedded Master.
#pragma once

#include <memory>
#include <utility>

#include "net/channel.h"
#include "os/executor.h"

namespace mooncake::net {

// Two ends of one connection between components on one executor. Payloads are copied once, in
// steps.
std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>> make_channel_pair(
    os::Executor& executor);

}  // namespace mooncake::net
