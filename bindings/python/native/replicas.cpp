#include "native/replicas.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "native/homes.h"

namespace mooncake::python {

namespace nb = nanobind;

namespace {

enum class ReplicaStatus : std::uint8_t {
  kUndefined = 0,
  kInitialized,
  kProcessing,
  kComplete,
  kRemoved,
  kFailed
};

struct MemoryDescriptor {
  ReplicaDescriptor where;
};

struct Replica {
  MemoryDescriptor memory;
};

void add_status(nb::module_& module) {
  nb::enum_<ReplicaStatus> type(module, "ReplicaStatus",
                                "State of a copy. Those that are listed are COMPLETE.",
                                nb::is_arithmetic());
  type.value("UNDEFINED", ReplicaStatus::kUndefined)
      .value("INITIALIZED", ReplicaStatus::kInitialized)
      .value("PROCESSING", ReplicaStatus::kProcessing)
      .value("COMPLETE", ReplicaStatus::kComplete)
      .value("REMOVED", ReplicaStatus::kRemoved)
      .value("FAILED", ReplicaStatus::kFailed)
      .export_values();
  set_home(type, "mooncake.store");
}

void add_memory(nb::module_& module) {
  nb::class_<ReplicaDescriptor> place(module, "Descriptor", "A range of a segment's memory.");
  place.def(nb::init<>(), nb::sig("def __init__(self: mooncake.store.Descriptor) -> None"))
      .def_rw("size", &ReplicaDescriptor::size, "Bytes.")
      .def_rw("buffer_address", &ReplicaDescriptor::address, "In the segment's process.")
      .def_rw("transport_endpoint", &ReplicaDescriptor::segment_name,
              "host:port of the segment's engine.")
      .def("__repr__", [](const ReplicaDescriptor& self) {
        return fmt::format("Descriptor(size={}, buffer_address={:#x}, transport_endpoint='{}')",
                           self.size, self.address, self.segment_name);
      });
  set_home(place, "mooncake.store");
  nb::class_<MemoryDescriptor> memory(module, "MemoryDescriptor", "A copy in memory.");
  memory.def_ro("buffer_descriptor", &MemoryDescriptor::where, "A Descriptor.");
  set_home(memory, "mooncake.store");
}

}  // namespace

nb::list replica_list(const std::vector<ReplicaDescriptor>& replicas) {
  nb::list list;
  for (const ReplicaDescriptor& replica : replicas)
    list.append(nb::cast(Replica{{replica}}));
  return list;
}

void add_replicas(nb::module_& module) {
  add_status(module);
  add_memory(module);
  nb::class_<Replica> type(module, "ReplicaDescriptor",
                           "One copy of an object; here they are all in memory.");
  type.def_prop_ro(
          "status", [](const Replica&) { return ReplicaStatus::kComplete; }, "A ReplicaStatus.")
      .def(
          "is_memory_replica", [](const Replica&) { return true; },
          nb::sig("def is_memory_replica(self: mooncake.store.ReplicaDescriptor) -> bool"), "True.")
      .def(
          "is_disk_replica", [](const Replica&) { return false; },
          nb::sig("def is_disk_replica(self: mooncake.store.ReplicaDescriptor) -> bool"), "False.")
      .def(
          "is_local_disk_replica", [](const Replica&) { return false; },
          nb::sig("def is_local_disk_replica(self: mooncake.store.ReplicaDescriptor) -> bool"),
          "False.")
      .def(
          "get_memory_descriptor", [](const Replica& self) { return self.memory; },
          nb::sig("def get_memory_descriptor(self: mooncake.store.ReplicaDescriptor) -> "
                  "mooncake.store.MemoryDescriptor"),
          "Where it lies.")
      .def(
          "get_disk_descriptor",
          [](const Replica&) -> nb::object {
            throw std::runtime_error("get_disk_descriptor: this copy is in memory");
          },
          nb::sig("def get_disk_descriptor(self: mooncake.store.ReplicaDescriptor) -> "
                  "mooncake.store.DiskDescriptor"),
          "RuntimeError, as for every copy that is in memory.");
  set_home(type, "mooncake.store");
}

}  // namespace mooncake::python
