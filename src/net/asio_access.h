// The one way from an executor to Asio, for sources of this folder. Not for other modules.
#pragma once

#include "os/executor.h"

namespace boost::asio {
class io_context;
}

namespace mooncake::net {

// The loop behind an executor of net/runtime.h; null for any other executor. Any thread.
boost::asio::io_context* io_context_of(os::Executor& executor);

}  // namespace mooncake::net
