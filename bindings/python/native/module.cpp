// mooncake._native: what mooncake/store.py and mooncake/engine.py export. Loading it starts
// nothing.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "native/arguments.h"
#include "native/engine.h"
#include "native/engine_module.h"
#include "native/interpreter.h"
#include "native/store.h"

namespace mooncake::python {

namespace {

using namespace nanobind::literals;

constexpr const char* kSetupDoc =
    R"(Joins a store: gives it a segment of this process's memory, and mounts that at the Master.

local_hostname       host, or host:port to fix the port, of this client's segment
metadata_server      "P2PHANDSHAKE", or "http://host:port/metadata"
global_segment_size  bytes given to the pool; 0 = a pure client; at least 1024 otherwise
local_buffer_size    bytes; checked, but not needed: values are read and written where they are
protocol             "tcp" and "rdma" choose the best path there is; a fast network that is missing
                     gives one warning, a device that is not supported is refused
rdma_devices         accepted, without effect
master_server_addr   "host:port", or "embedded": a Master inside this process, with no ports
engine, enable_ssd_offload, tenant_id, enable_client_http_server
                     refused unless left at their defaults

The cluster's secret is taken from the environment variable MOONCAKE_CLUSTER_SECRET.
Returns 0, or a negative code after one line on stderr that names the field, its value and what is
allowed: -600 for bad arguments, or when it is set up already; -900 or -901 when the Master can't be
reached within five seconds. After close() it may be set up again.
Source: include/mooncake/store.h, Store::create.)";

constexpr const char* kSetupDictDoc =
    R"(The same with a dict. Required: local_hostname and metadata_server. The others have the defaults
global_segment_size and local_buffer_size "16MB", protocol "tcp", master_server_addr
"127.0.0.1:50051". Values are taken as text: sizes may be "16MB" or "16 MB", switches "true" or "no",
None counts as not given. master_server_address and device_name are understood too; cluster_secret
wins over the environment; timeout ("5s") is the deadline of a call. Unknown keys give one warning
that names them.
Source: bindings/python/native/setup.cpp.)";

constexpr const char* kPutDoc =
    R"(Stores a value that nobody changes any more.

key     str or bytes, 1 to 4096 bytes
value   any object with the buffer protocol whose bytes lie one after the other; sent from where it
        lies, without a copy
config  number of replicas; None = one

Returns 0, also when the key exists, whose value then stays as it is; -600 for an empty value or key,
or when not set up; -200 without room; -800 or lower when the data or the Master could not be reached
in time. Raises BufferError for a value that is not contiguous.
Source: include/mooncake/store.h, Store::put_batch.)";

constexpr const char* kGetDoc =
    R"(The value of a key (str or bytes), or b"" when it is missing, can't be read before the deadline,
or the store is not set up. Takes a lease on the object.
Source: include/mooncake/store.h, Store::get.)";

constexpr const char* kIsExistDoc =
    R"(Whether a key (str or bytes) is there: 1; 0, also when the Master is out of reach; or a negative
code: -600 for a bad key, or when not set up. Takes a lease on the object.
Source: include/mooncake/store.h, Store::exist_batch.)";

constexpr const char* kRemoveDoc =
    R"(Removes an object; readers that have begun may still end.

Returns 0; -704 when it is missing; -706 when a reader has a lease and force is false; -703 while it
is being written; -600 for a bad key, or when not set up; -900 or -901 when the Master is out of reach.
Source: include/mooncake/store.h, Store::remove_batch.)";

constexpr const char* kCloseDoc =
    R"(Unmounts the segment, whose objects are lost, and ends calls under way. Returns 0, within two seconds
whatever the Master does, and at once when there is nothing to close. After it every call gives -600
or b"", until the next setup().
Source: include/mooncake/store.h, Store::close.)";

// Signatures as the published package prints them; callers look for names in them.
#define MC_SELF "self: mooncake.store.MooncakeDistributedStore"
constexpr const char* kSetupSignature =
    "def setup(" MC_SELF
    ", local_hostname: str, metadata_server: str, global_segment_size: int, local_buffer_size: int,"
    " protocol: str, rdma_devices: str, master_server_addr: str, engine: object = None,"
    " enable_ssd_offload: bool = False, ssd_offload_path: str = '', tenant_id: str = 'default',"
    " enable_client_http_server: bool = False, client_http_port: int = 9300) -> int";
constexpr const char* kSetupDictSignature = "def setup(" MC_SELF ", config: dict) -> int";
constexpr const char* kPutSignature =
    "def put(" MC_SELF
    ", key: str, value: Buffer, config: mooncake.store.ReplicateConfig ="
    " <mooncake.store.ReplicateConfig object>) -> int";
constexpr const char* kGetSignature = "def get(" MC_SELF ", arg0: str) -> bytes";
constexpr const char* kIsExistSignature = "def is_exist(" MC_SELF ", arg0: str) -> int";
constexpr const char* kRemoveSignature =
    "def remove(" MC_SELF ", key: str, force: bool = False) -> int";
constexpr const char* kCloseSignature = "def close(" MC_SELF ") -> int";
#undef MC_SELF

int setup_by_arguments(DistributedStore& self, const std::string& local_hostname,
                       const std::string& metadata_server, const Integer& global_segment_size,
                       const Integer& local_buffer_size, const std::string& protocol,
                       const std::string& rdma_devices, const std::string& master_server_addr,
                       nb::handle engine, Truth enable_ssd_offload,
                       const std::string& ssd_offload_path, const std::string& tenant_id,
                       Truth enable_client_http_server, const Integer& client_http_port) {
  if (!engine.is_none()) {
    base::log_error("setup: engine: a TransferEngine can't be shared here yet; leave it at None");
    return code_info(Code::kInvalidArgument).store;
  }
  const auto text = [](Truth truth) { return truth.value ? "true" : "false"; };
  return self.setup({{"local_hostname", local_hostname},
                     {"metadata_server", metadata_server},
                     {"global_segment_size", global_segment_size.digits},
                     {"local_buffer_size", local_buffer_size.digits},
                     {"protocol", protocol},
                     {"rdma_devices", rdma_devices},
                     {"master_server_addr", master_server_addr},
                     {"enable_ssd_offload", text(enable_ssd_offload)},
                     {"ssd_offload_path", ssd_offload_path},
                     {"tenant_id", tenant_id},
                     {"enable_client_http_server", text(enable_client_http_server)},
                     {"client_http_port", client_http_port.digits}});
}

int setup_by_dict(DistributedStore& self, const nb::dict& config) {
  SetupTexts given;
  for (const auto& [key, value] : config) {
    if (value.is_none()) continue;
    given[nb::str(key).c_str()] = nb::str(value).c_str();
  }
  return self.setup(std::move(given));
}

// Of the published package, where these types live in mooncake.store.
void set_home(nb::handle type) { nb::setattr(type, "__module__", nb::str("mooncake.store")); }

void add_replicate_config(nb::module_& module) {
  nb::class_<ReplicateConfig> type(
      module, "ReplicateConfig", "How an object is to be kept. Copied by the call it is given to.");
  type.def(nb::init<>(), nb::sig("def __init__(self: mooncake.store.ReplicateConfig) -> None"))
      .def_rw("replica_num", &ReplicateConfig::replica_num,
              "Copies in distinct segments; fewer when there is no room, at least one. Default 1.")
      .def("__str__", [](const ReplicateConfig& self) {
        return "ReplicateConfig(replica_num=" + std::to_string(self.replica_num) + ")";
      });
  set_home(type);
}

void add_distributed_store(nb::module_& module) {
  nb::class_<DistributedStore> type(module, "MooncakeDistributedStore",
                                    "One client of a store. Calls block, let other threads run "
                                    "meanwhile, and may be made from many\n"
                                    "threads at once. In a forked child it is not set up. A "
                                    "failure is a miss within the deadline.");
  type.def(nb::init<>(),
           nb::sig("def __init__(self: mooncake.store.MooncakeDistributedStore) -> None"))
      .def("setup", &setup_by_arguments, "local_hostname"_a, "metadata_server"_a,
           "global_segment_size"_a, "local_buffer_size"_a, "protocol"_a, "rdma_devices"_a,
           "master_server_addr"_a, "engine"_a = nb::none(),
           "enable_ssd_offload"_a = nb::bool_(false), "ssd_offload_path"_a = "",
           "tenant_id"_a = "default", "enable_client_http_server"_a = nb::bool_(false),
           "client_http_port"_a = nb::int_(9300), nb::sig(kSetupSignature), kSetupDoc)
      .def("setup", &setup_by_dict, "config"_a, nb::sig(kSetupDictSignature), kSetupDictDoc)
      .def("put", &DistributedStore::put, "key"_a, "value"_a, "config"_a = nb::none(),
           nb::sig(kPutSignature), kPutDoc)
      .def("get", &DistributedStore::get, "key"_a, nb::sig(kGetSignature), kGetDoc)
      .def("is_exist", &DistributedStore::is_exist, "key"_a, nb::sig(kIsExistSignature),
           kIsExistDoc)
      .def(
          "remove",
          [](DistributedStore& self, Key key, Truth force) {
            return self.remove(key, force.value);
          },
          "key"_a, "force"_a = nb::bool_(false), nb::sig(kRemoveSignature), kRemoveDoc)
      .def("close", &DistributedStore::close, nb::sig(kCloseSignature), kCloseDoc);
  set_home(type);
}

void close_everything() {
  std::vector<std::function<void()>> closers = take_all_stores();
  for (std::function<void()>& closer : take_all_engines())
    closers.push_back(std::move(closer));
  end_interpreter(std::move(closers));
}

}  // namespace

}  // namespace mooncake::python

NB_MODULE(_native, module) {
  // At the end of the interpreter objects in modules are left as they are; what they hold has been
  // closed by then.
  nanobind::set_leak_warnings(false);
  mooncake::python::add_replicate_config(module);
  mooncake::python::add_distributed_store(module);
  mooncake::python::add_transfer_engine(module);
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function(&mooncake::python::close_everything));
}
