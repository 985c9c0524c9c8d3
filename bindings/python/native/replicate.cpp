#include "native/replicate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "native/homes.h"

namespace mooncake::python {

namespace nb = nanobind;

namespace {

Result<ReplicateConfig> refuse(std::string why) { return fail(Code::kInvalidArgument, why); }

// As Python writes it.
std::string member(const char* type, nb::handle value) {
  return fmt::format("{}.{}", type, nb::cast<std::string>(value.attr("name")));
}

std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", word);
  return "[" + text + "]";
}

}  // namespace

std::string ReplicaSettings::text() const {
  const auto truth = [](bool value) { return value ? "True" : "False"; };
  return fmt::format(
      "ReplicateConfig(replica_num={}, nof_replica_num={}, dfs_replica_num={}, soft_pin_action={}, "
      "soft_pin_ttl_ms={}, with_hard_pin={}, preferred_segments={}, preferred_segment='{}', "
      "preferred_nof_segments={}, prefer_alloc_in_same_node={}, data_type={}, group_ids={})",
      replica_num, nof_replica_num, dfs_replica_num,
      member("SoftPinAction", nb::cast(soft_pin_action)),
      soft_pin_ttl_ms ? fmt::to_string(*soft_pin_ttl_ms) : "None", truth(with_hard_pin),
      quoted(preferred_segments), preferred_segment, quoted(preferred_nof_segments),
      truth(prefer_alloc_in_same_node), member("ObjectDataType", nb::cast(data_type)),
      group_ids ? quoted(*group_ids) : "None");
}

Result<ReplicateConfig> plan_replicas(const ReplicaSettings* settings, std::size_t objects,
                                      SameNode same_node) {
  ReplicateConfig config;
  if (settings == nullptr) return config;
  if (settings->nof_replica_num != 0 || settings->dfs_replica_num != 0) {
    return refuse(fmt::format(
        "nof_replica_num={}, dfs_replica_num={}: objects are kept in memory here; leave both at 0",
        settings->nof_replica_num, settings->dfs_replica_num));
  }
  if (settings->prefer_alloc_in_same_node && same_node == SameNode::kRefused) {
    return refuse(
        "prefer_alloc_in_same_node=True is for batch_put_from_multi_buffers(); leave it at False");
  }
  if (settings->group_ids && settings->group_ids->size() != objects) {
    return refuse(
        fmt::format("group_ids has {} entries for {} keys; give one for each, \"\" = none",
                    settings->group_ids->size(), objects));
  }
  config.replica_num = settings->replica_num;
  config.soft_pin = settings->soft_pin_action;
  if (settings->soft_pin_ttl_ms) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (*settings->soft_pin_ttl_ms > kMost) {
      return refuse(
          fmt::format("soft_pin_ttl_ms={} is above {}", *settings->soft_pin_ttl_ms, kMost));
    }
    config.soft_pin_ttl = std::chrono::milliseconds(*settings->soft_pin_ttl_ms);
  }
  config.hard_pin = settings->with_hard_pin;
  config.preferred_segments = settings->preferred_segments;
  if (!settings->preferred_segment.empty()) {
    config.preferred_segments.assign(1, settings->preferred_segment);
  }
  config.prefer_same_node = settings->prefer_alloc_in_same_node;
  config.data_type = settings->data_type;
  config.group_ids = settings->group_ids;
  return config;
}

namespace {

void add_enums(nb::module_& module) {
  nb::enum_<SoftPin> pin(module, "SoftPinAction",
                         "What a write does about an object's soft pin, which keeps it from "
                         "eviction while anything else may go.",
                         nb::is_arithmetic());
  pin.value("PRESERVE", SoftPin::kPreserve, "As the object has it; a new one has none.")
      .value("ENABLE", SoftPin::kEnable, "A pin for soft_pin_ttl_ms.")
      .value("DISABLE", SoftPin::kDisable, "None.");
  set_home(pin, "mooncake.store");
  nb::enum_<ObjectDataType> type(module, "ObjectDataType",
                                 "What an object is: counted by the Master, without other effect.",
                                 nb::is_arithmetic());
  type.value("UNKNOWN", ObjectDataType::kUnknown)
      .value("KVCACHE", ObjectDataType::kKvCache)
      .value("TENSOR", ObjectDataType::kTensor)
      .value("WEIGHT", ObjectDataType::kWeight)
      .value("SAMPLE", ObjectDataType::kSample)
      .value("ACTIVATION", ObjectDataType::kActivation)
      .value("GRADIENT", ObjectDataType::kGradient)
      .value("OPTIMIZER_STATE", ObjectDataType::kOptimizerState)
      .value("METADATA", ObjectDataType::kMetadata)
      .value("GENERAL", ObjectDataType::kGeneral)
      .export_values();
  set_home(type, "mooncake.store");
}

}  // namespace

void add_replicate_config(nb::module_& module) {
  add_enums(module);
  using Settings = ReplicaSettings;
  nb::class_<Settings> type(module, "ReplicateConfig",
                            "How objects are placed and kept. Copied by the call it is given to.");
  type.def(nb::init<>(), nb::sig("def __init__(self: mooncake.store.ReplicateConfig) -> None"))
      .def_rw("replica_num", &Settings::replica_num,
              "Copies in distinct segments, 1 to 4; fewer when there is no room, at least one. "
              "Default 1.")
      .def_rw("nof_replica_num", &Settings::nof_replica_num,
              "Copies on NVMe-oF targets; a write refuses all but the default, 0.")
      .def_rw("dfs_replica_num", &Settings::dfs_replica_num,
              "Copies on a shared file system; a write refuses all but the default, 0.")
      .def_rw("soft_pin_action", &Settings::soft_pin_action, "A SoftPinAction. Default PRESERVE.")
      .def_rw("soft_pin_ttl_ms", &Settings::soft_pin_ttl_ms, nb::arg().none(),
              "Milliseconds of a soft pin, only with ENABLE; None = the Master's default. 0 = no "
              "pin. Default None.")
      .def_rw("with_hard_pin", &Settings::with_hard_pin,
              "Never evicted, until it is removed. Default False.")
      .def_rw("preferred_segments", &Settings::preferred_segments,
              "Names (get_hostname() of their stores) of segments to try first, in this order. To "
              "be assigned as a whole. Default [].")
      .def_rw("preferred_segment", &Settings::preferred_segment,
              "Deprecated: one name, which replaces the list when not empty. Default ''.")
      .def_rw("preferred_nof_segments", &Settings::preferred_nof_segments,
              "Without effect, as there are no copies on NVMe-oF targets. Default [].")
      .def_rw("prefer_alloc_in_same_node", &Settings::prefer_alloc_in_same_node,
              "Segments of the writer, then of its host, come first; only for "
              "batch_put_from_multi_buffers(), other writes refuse it. Default False.")
      .def_rw("data_type", &Settings::data_type, "An ObjectDataType. Default UNKNOWN.")
      .def_rw(
          "group_ids", &Settings::group_ids, nb::arg().none(),
          "One for each key of the call, '' = none; None = no groups. Members are written, read "
          "and evicted each for itself. Default None.")
      .def_prop_rw(
          "with_soft_pin",
          [](const Settings& self) { return self.soft_pin_action == SoftPin::kEnable; },
          [](Settings& self, bool value) {
            self.soft_pin_action = value ? SoftPin::kEnable : SoftPin::kPreserve;
          },
          "Whether soft_pin_action is ENABLE; False makes it PRESERVE.")
      .def("__copy__", [](const Settings& self) { return self; })
      .def("__deepcopy__", [](const Settings& self, nb::handle) { return self; })
      .def("__str__", &Settings::text);
  set_home(type, "mooncake.store");
}

}  // namespace mooncake::python
