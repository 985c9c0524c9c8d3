// Awaiting Asio operations in our tasks. Internal to the HTTP server and client; names no Asio
// type.
#pragma once

#include <cstddef>
#include <utility>

#include "os/executor.h"

namespace mooncake::net {

// Starts an operation by start(handler), and returns what its handler got: an error of type E. The
// handler may take a second argument, which is dropped. What the operation uses must live in the
// caller.
template <typename E, typename Start>
base::Task<E> await_io(os::Executor& executor, Start start) {
  os::Completion<E> done(executor);
  start([&done](E error, auto&&...) { done.set(error); });
  co_return co_await done;
}

}  // namespace mooncake::net
