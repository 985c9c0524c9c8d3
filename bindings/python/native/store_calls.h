// What the calls of MooncakeDistributedStore share.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "native/interpreter.h"
#include "native/store.h"

namespace mooncake::python {

inline const std::int32_t kNotSetUp = code_info(Code::kNotReady).store;
inline const std::int32_t kRefused = code_info(Code::kInvalidArgument).store;

// Runs `call` without the GIL; raises what a signal handler raised meanwhile.
template <typename Call>
auto waiting(Call call) {
  auto outcome = [&call] {
    const WithoutGil without_gil;
    return call();
  }();
  check_raised();
  return outcome;
}

// Without the GIL: one code for each item. A line on stderr says what is wrong with the first that
// is refused.
std::vector<std::int32_t> write_items(StoreSession& session, Write kind,
                                      std::span<const PutItem> items,
                                      const ReplicateConfig& config);

// The config of a call that writes; a line on stderr says what is wrong with it.
inline Result<ReplicateConfig> replicas_of(const char* call, const ReplicaSettings* settings,
                                           std::size_t objects,
                                           SameNode same_node = SameNode::kRefused) {
  Result<ReplicateConfig> config = plan_replicas(settings, objects, same_node);
  if (!config) base::log_error("{}: {}", call, config.error().message());
  return config;
}

}  // namespace mooncake::python
