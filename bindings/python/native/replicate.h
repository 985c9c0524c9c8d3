// ReplicateConfig as Python sees it, and what a call makes of it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mooncake/store.h"

namespace mooncake::python {

// Any thread, under the GIL. A call copies what it is given before it lets go of that.
struct ReplicaSettings {
  std::uint32_t replica_num = 1;
  std::uint32_t nof_replica_num = 0;
  std::uint32_t dfs_replica_num = 0;
  SoftPin soft_pin_action = SoftPin::kPreserve;
  std::optional<std::uint64_t> soft_pin_ttl_ms;
  bool with_hard_pin = false;
  std::vector<std::string> preferred_segments;
  std::string preferred_segment;  // wins over the list
  std::vector<std::string> preferred_nof_segments;
  bool prefer_alloc_in_same_node = false;
  ObjectDataType data_type = ObjectDataType::kUnknown;
  std::optional<std::vector<std::string>> group_ids;

  std::string text() const;  // "ReplicateConfig(replica_num=1, ...)", all fields
};

enum class SameNode : std::uint8_t { kRefused, kAllowed };

// For a call with `objects` keys; null = all defaults. kInvalidArgument names the field, its value
// and the way out.
Result<ReplicateConfig> plan_replicas(const ReplicaSettings* settings, std::size_t objects,
                                      SameNode same_node);

// mooncake.store.ReplicateConfig, SoftPinAction and ObjectDataType.
void add_replicate_config(nanobind::module_& module);

}  // namespace mooncake::python
