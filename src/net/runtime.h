// Runtime: one reactor thread with sockets and timers: the production Env of one process part.
#pragma once

#include <memory>
#include <string>

#include "mooncake/result.h"
#include "os/env.h"

namespace mooncake::net {

class Runtime {
 public:
  // Starts the thread, named `name`. kSystemCall names the limit that was hit.
  static Result<std::unique_ptr<Runtime>> start(const std::string& name);
  // Components on this runtime must have been stopped. Joins the thread. In a forked child: does
  // not touch anything of the parent.
  virtual ~Runtime() = default;

  virtual os::Env env() = 0;
};

}  // namespace mooncake::net
