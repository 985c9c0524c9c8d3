// Where the copies of an object lie, as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "mooncake/store.h"

namespace mooncake::python {

// A list of ReplicaDescriptor.
nanobind::list replica_list(const std::vector<ReplicaDescriptor>& replicas);

// mooncake.store.ReplicaDescriptor, MemoryDescriptor, Descriptor and ReplicaStatus.
void add_replicas(nanobind::module_& module);

}  // namespace mooncake::python
