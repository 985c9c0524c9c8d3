// The names of mooncake.engine.
#pragma once

#include <nanobind/nanobind.h>

namespace mooncake::python {

void add_transfer_engine(nanobind::module_& module);

}  // namespace mooncake::python
