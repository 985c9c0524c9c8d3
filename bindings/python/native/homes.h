// Where a type says that it lives.
#pragma once

#include <nanobind/nanobind.h>

namespace mooncake::python {

// Of the published package: callers and pickles see these modules, not mooncake._native.
inline void set_home(nanobind::handle type, const char* module) {
  nanobind::setattr(type, "__module__", nanobind::str(module));
}

}  // namespace mooncake::python
