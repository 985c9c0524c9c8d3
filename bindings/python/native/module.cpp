// mooncake._native: what mooncake/store.py and mooncake/engine.py export. Loading it starts
// nothing.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "native/engine.h"
#include "native/engine_module.h"
#include "native/interpreter.h"
#include "native/memory_objects.h"
#include "native/replicas.h"
#include "native/replicate.h"
#include "native/store.h"
#include "native/store_module.h"
#include "store/types.h"
#include "transfer/protocols.h"

namespace mooncake::python {

namespace {

// For capabilities() and MooncakeConfig.
void add_facts(nanobind::module_& module) {
  nanobind::list protocols, served;
  std::string_view left = transfer::kProtocols;
  while (!left.empty()) {
    const std::string_view name = left.substr(0, left.find('|'));
    protocols.append(nanobind::str(name.data(), name.size()));
    if (transfer::check_protocol(std::string(name))) {
      served.append(nanobind::str(name.data(), name.size()));
    }
    left.remove_prefix(std::min(left.size(), name.size() + 1));
  }
  module.attr("PROTOCOLS") = nanobind::tuple(protocols);
  module.attr("SERVED_PROTOCOLS") = nanobind::tuple(served);
  module.attr("MAX_KEY_BYTES") = store::kMaxKeyLength;
  module.attr("MAX_REPLICAS") = store::kMaxReplicas;
  module.attr("__version__") = MOONCAKE_VERSION;
}

void close_everything() { end_interpreter(take_all_stores(), take_all_engines()); }

}  // namespace

}  // namespace mooncake::python

NB_MODULE(_native, module) {
  // At the end of the interpreter objects in modules are left as they are; what they hold has been
  // closed by then.
  nanobind::set_leak_warnings(false);
  mooncake::python::add_facts(module);
  mooncake::python::add_replicate_config(module);
  mooncake::python::add_replicas(module);
  mooncake::python::add_memory_objects(module);
  mooncake::python::add_distributed_store(module);
  mooncake::python::add_transfer_engine(module);
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function(&mooncake::python::close_everything));
}
