// The names of mooncake.store.
#pragma once

#include <nanobind/nanobind.h>

namespace mooncake::python {

void add_distributed_store(nanobind::module_& module);

}  // namespace mooncake::python
