// What the Master counts. Names as in the published metrics, where they exist.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "base/metrics.h"
#include "net/rpc.h"
#include "store/master/core.h"

namespace mooncake::store::master {

// One line for people.
std::string metrics_summary(const Core& core);

// Executor thread only; what it reads must outlive it.
class ServerMetrics {
 public:
  ServerMetrics(const Core& core, const net::RpcServer& rpc);

  // One message has been answered. `failed`: it was refused as a whole.
  void answered(const Command& command, const Effects& effects, bool failed);
  base::MetricsRegistry& registry() { return registry_; }

 private:
  // A message with one item counts under the first name, with several under the second.
  struct Method {
    base::Counter* requests = nullptr;
    base::Counter* failures = nullptr;
    base::Counter* batch_requests = nullptr;
    base::Counter* batch_failures = nullptr;
    base::Counter* batch_partial_successes = nullptr;
    base::Counter* batch_items = nullptr;
    base::Counter* batch_failed_items = nullptr;
  };
  void add_method(CommandKind kind, const std::string& name);
  void add_data_types();
  void add_gauges(const Core& core);
  void add_refusals(const net::RpcServer& rpc);

  base::MetricsRegistry registry_;
  std::array<Method, static_cast<std::size_t>(CommandKind::kTick) + 1> methods_;
  Method by_regex_;
  base::Counter& asked_;
  base::Counter& found_;
  base::Histogram& value_bytes_;
  std::array<base::Counter*, static_cast<std::size_t>(ObjectDataType::kGeneral) + 1> granted_{};
};

}  // namespace mooncake::store::master
