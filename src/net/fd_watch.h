// FdWatch: calls back on the executor when a file descriptor has something to read, or has ended.
#pragma once

#include <functional>
#include <memory>

#include "mooncake/result.h"
#include "os/executor.h"

namespace mooncake::net {

// For descriptors that are no channels: Unix sockets that carry descriptors, pidfds, eventfds.
// Executor thread only.
class FdWatch {
 public:
  // Calls `readable` for as long as there is something to read; it has to take it, or to end the
  // watch, which it may do from inside. Doesn't take over `fd`, which must outlive the watch.
  // kNotSupported on an executor without sockets (a simulated one).
  static Result<std::unique_ptr<FdWatch>> start(os::Executor& executor, int fd,
                                                std::function<void()> readable);
  virtual ~FdWatch() = default;  // calls back no more
};

}  // namespace mooncake::net
