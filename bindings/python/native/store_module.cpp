#include "native/store_module.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "base/log.h"
#include "native/engine.h"
#include "native/homes.h"
#include "native/memory_objects.h"
#include "native/store.h"
#include "native/store_docs.h"

namespace mooncake::python {

namespace {

using namespace nanobind::literals;

using StoreClass = nb::class_<DistributedStore>;
using Settings = ReplicaSettings;

// Of what setup() was given as `engine`; null for None.
Result<std::shared_ptr<EngineSession>> shared_engine(nb::handle engine) {
  if (engine.is_none()) return std::shared_ptr<EngineSession>();
  const PythonEngine* shared = nullptr;
  if (nb::try_cast(engine, shared) && shared != nullptr && shared->session() != nullptr) {
    return shared->session();
  }
  return fail(Code::kInvalidArgument,
              "engine: a mooncake.engine.TransferEngine that has been initialized is needed");
}

int setup_by_arguments(DistributedStore& self, const std::string& local_hostname,
                       const std::string& metadata_server, const Integer& global_segment_size,
                       const Integer& local_buffer_size, const std::string& protocol,
                       const std::string& rdma_devices, const std::string& master_server_addr,
                       nb::handle engine, Truth enable_ssd_offload,
                       const std::string& ssd_offload_path, const std::string& tenant_id,
                       Truth enable_client_http_server, const Integer& client_http_port) {
  auto shared = shared_engine(engine);
  if (!shared) {
    base::log_error("setup: {}", shared.error().message());
    return shared.error().store_code();
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
                     {"client_http_port", client_http_port.digits}},
                    std::move(*shared));
}

int setup_by_dict(DistributedStore& self, const nb::dict& config) {
  SetupTexts given;
  for (const auto& [key, value] : config) {
    if (value.is_none()) continue;
    given[nb::str(key).c_str()] = nb::str(value).c_str();
  }
  return self.setup(std::move(given));
}

int init_all(DistributedStore& self, const std::string& protocol, const std::string& device_name,
             const Integer& mount_segment_size) {
  return self.setup({{"local_hostname", "localhost"},
                     {"metadata_server", "P2PHANDSHAKE"},
                     {"global_segment_size", mount_segment_size.digits},
                     {"protocol", protocol},
                     {"rdma_devices", device_name}});
}

template <Write kind>
int write(DistributedStore& self, Key key, Buffer value, const Settings* config) {
  return self.write(kind, key, value, config);
}

template <Write kind>
int write_parts(DistributedStore& self, Key key, const nb::args& parts, const Settings* config) {
  return self.write_parts(kind, key, parts, config);
}

template <Write kind>
int write_batch(DistributedStore& self, const KeyList& keys, nb::handle values,
                const Settings* config) {
  return self.write_batch(kind, keys, values, config);
}

template <Write kind>
int write_from(DistributedStore& self, Key key, Word address, Word length, const Settings* config) {
  return self.write_from(kind, key, address, length, config);
}

template <Write kind>
nb::object write_batch_from(DistributedStore& self, const KeyList& keys,
                            const IntegerList& addresses, const IntegerList& lengths,
                            const Settings* config) {
  return self.write_batch_from(kind, keys, {NumberRows(addresses), NumberRows(lengths)}, config,
                               SameNode::kRefused);
}

nb::object put_many(DistributedStore& self, const KeyList& keys, const IntegerTable& addresses,
                    const IntegerTable& lengths, const Settings* config) {
  return self.write_batch_from(Write::kPut, keys, {NumberRows(addresses), NumberRows(lengths)},
                               config, SameNode::kAllowed);
}

nb::object get_batch_into(DistributedStore& self, const KeyList& keys, const IntegerList& addresses,
                          const IntegerList& lengths) {
  return self.get_batch_into(keys, {NumberRows(addresses), NumberRows(lengths)});
}

nb::object get_many(DistributedStore& self, const KeyList& keys, const IntegerTable& addresses,
                    const IntegerTable& lengths, Truth) {
  return self.get_batch_into(keys, {NumberRows(addresses), NumberRows(lengths)});
}

void add_life(StoreClass& type) {
  type.def(nb::init<>(),
           nb::sig("def __init__(self: mooncake.store.MooncakeDistributedStore) -> None"))
      .def("setup", &setup_by_arguments, "local_hostname"_a, "metadata_server"_a,
           "global_segment_size"_a, "local_buffer_size"_a, "protocol"_a, "rdma_devices"_a,
           "master_server_addr"_a, "engine"_a = nb::none(),
           "enable_ssd_offload"_a = nb::bool_(false), "ssd_offload_path"_a = "",
           "tenant_id"_a = "default", "enable_client_http_server"_a = nb::bool_(false),
           "client_http_port"_a = nb::int_(9300), nb::sig(docs::kSetupSignature), docs::kSetup)
      .def("setup", &setup_by_dict, "config"_a, nb::sig(docs::kSetupDictSignature),
           docs::kSetupDict)
      .def("init_all", &init_all, "protocol"_a, "device_name"_a,
           "mount_segment_size"_a = nb::int_(16 << 20), nb::sig(docs::kInitAllSignature),
           docs::kInitAll)
      .def("close", &DistributedStore::close, nb::sig(docs::kCloseSignature), docs::kClose)
      .def("health_check", &DistributedStore::health, nb::sig(docs::kHealthSignature),
           docs::kHealth)
      .def("get_hostname", &DistributedStore::hostname, nb::sig(docs::kHostnameSignature),
           docs::kHostname)
      // For BufferPool: which setup this is, 0 when not set up, and the bound of its memory.
      .def_prop_ro("_session",
                   [](const DistributedStore& self) {
                     const auto session = self.session();
                     return session == nullptr ? 0 : session->number();
                   })
      .def_prop_ro("_local_buffer_size", [](const DistributedStore& self) {
        const auto session = self.session();
        return session == nullptr ? 0 : session->local_buffer_size();
      });
}

void add_values(StoreClass& type) {
  type.def("put", &write<Write::kPut>, "key"_a, "value"_a, "config"_a = nb::none(),
           nb::sig(docs::kPutSignature), docs::kPut)
      .def("put_parts", &write_parts<Write::kPut>, "key"_a, "args"_a, "config"_a = nb::none(),
           nb::sig(docs::kPutPartsSignature), docs::kPutParts)
      .def("put_batch", &write_batch<Write::kPut>, "keys"_a, "values"_a, "config"_a = nb::none(),
           nb::sig(docs::kPutBatchSignature), docs::kPutBatch)
      .def("upsert", &write<Write::kUpsert>, "key"_a, "value"_a, "config"_a = nb::none(),
           nb::sig(docs::kUpsertSignature), docs::kUpsert)
      .def("upsert_parts", &write_parts<Write::kUpsert>, "key"_a, "args"_a, "config"_a = nb::none(),
           nb::sig(docs::kUpsertPartsSignature), docs::kUpsertParts)
      .def("upsert_batch", &write_batch<Write::kUpsert>, "keys"_a, "values"_a,
           "config"_a = nb::none(), nb::sig(docs::kUpsertBatchSignature), docs::kUpsertBatch)
      .def("get", &DistributedStore::get, "key"_a, nb::sig(docs::kGetSignature), docs::kGet)
      .def("get_batch", &DistributedStore::get_batch, "keys"_a, nb::sig(docs::kGetBatchSignature),
           docs::kGetBatch)
      .def("get_buffer", &DistributedStore::get_buffer, "key"_a, nb::sig(docs::kGetBufferSignature),
           docs::kGetBuffer)
      .def("get_pinned", &DistributedStore::get_pinned, "key"_a, nb::sig(docs::kGetPinnedSignature),
           docs::kGetPinned)
      .def("batch_get_buffer", &DistributedStore::get_buffers, "keys"_a,
           nb::sig(docs::kGetBuffersSignature), docs::kGetBuffers);
}

void add_questions(StoreClass& type) {
  type.def("is_exist", &DistributedStore::is_exist, "key"_a, nb::sig(docs::kIsExistSignature),
           docs::kIsExist)
      .def("batch_is_exist", &DistributedStore::exist_batch, "keys"_a,
           nb::sig(docs::kExistBatchSignature), docs::kExistBatch)
      .def("get_size", &DistributedStore::size, "key"_a, nb::sig(docs::kSizeSignature), docs::kSize)
      .def(
          "remove",
          [](DistributedStore& self, Key key, Truth force) {
            return self.remove(key, force.value);
          },
          "key"_a, "force"_a = nb::bool_(false), nb::sig(docs::kRemoveSignature), docs::kRemove)
      .def(
          "batch_remove",
          [](DistributedStore& self, const KeyList& keys, Truth force) {
            return self.remove_batch(keys, force.value);
          },
          "keys"_a, "force"_a = nb::bool_(false), nb::sig(docs::kRemoveBatchSignature),
          docs::kRemoveBatch)
      .def(
          "remove_by_regex",
          [](DistributedStore& self, const std::string& pattern, Truth force) {
            return self.remove_by_regex(pattern, force.value);
          },
          "regex_pattern"_a, "force"_a = nb::bool_(false), nb::sig(docs::kRemoveRegexSignature),
          docs::kRemoveRegex)
      .def(
          "remove_all",
          [](DistributedStore& self, Truth force) { return self.remove_all(force.value); },
          "force"_a = nb::bool_(false), nb::sig(docs::kRemoveAllSignature), docs::kRemoveAll)
      .def("why", &DistributedStore::why, "key"_a, nb::sig(docs::kWhySignature), docs::kWhy)
      .def("batch_put_outcomes", &DistributedStore::put_outcomes, "keys"_a, "values"_a,
           "config"_a = nb::none(), nb::sig(docs::kPutOutcomesSignature), docs::kPutOutcomes)
      .def("batch_get_outcomes", &DistributedStore::get_outcomes, "keys"_a,
           nb::sig(docs::kGetOutcomesSignature), docs::kGetOutcomes)
      .def("batch_exist_outcomes", &DistributedStore::exist_outcomes, "keys"_a,
           nb::sig(docs::kExistOutcomesSignature), docs::kExistOutcomes)
      .def("get_replica_desc", &DistributedStore::replicas, "key"_a,
           nb::sig(docs::kReplicasSignature), docs::kReplicas)
      .def("batch_get_replica_desc", &DistributedStore::replicas_batch, "keys"_a,
           nb::sig(docs::kReplicasBatchSignature), docs::kReplicasBatch);
}

void add_registered_memory(StoreClass& type) {
  type.def("register_buffer", &DistributedStore::register_buffer, "buffer_ptr"_a, "size"_a,
           nb::sig(docs::kRegisterSignature), docs::kRegister)
      .def("unregister_buffer", &DistributedStore::unregister_buffer, "buffer_ptr"_a,
           nb::sig(docs::kUnregisterSignature), docs::kUnregister)
      .def("put_from", &write_from<Write::kPut>, "key"_a, "buffer_ptr"_a, "size"_a,
           "config"_a = nb::none(), nb::sig(docs::kPutFromSignature), docs::kPutFrom)
      .def("put_from_with_metadata", &DistributedStore::put_from_with_metadata, "key"_a,
           "buffer_ptr"_a, "metadata_buffer_ptr"_a, "size"_a, "metadata_size"_a,
           "config"_a = nb::none(), nb::sig(docs::kPutFromMetadataSignature),
           docs::kPutFromMetadata)
      .def("batch_put_from", &write_batch_from<Write::kPut>, "keys"_a, "buffer_ptrs"_a, "sizes"_a,
           "config"_a = nb::none(), nb::sig(docs::kPutBatchFromSignature), docs::kPutBatchFrom)
      .def("upsert_from", &write_from<Write::kUpsert>, "key"_a, "buffer_ptr"_a, "size"_a,
           "config"_a = nb::none(), nb::sig(docs::kUpsertFromSignature), docs::kUpsertFrom)
      .def("batch_upsert_from", &write_batch_from<Write::kUpsert>, "keys"_a, "buffer_ptrs"_a,
           "sizes"_a, "config"_a = nb::none(), nb::sig(docs::kUpsertBatchFromSignature),
           docs::kUpsertBatchFrom)
      .def("batch_put_from_multi_buffers", &put_many, "keys"_a, "all_buffer_ptrs"_a, "all_sizes"_a,
           "config"_a = nb::none(), nb::sig(docs::kPutManySignature), docs::kPutMany)
      .def("get_into", &DistributedStore::get_into, "key"_a, "buffer_ptr"_a, "size"_a,
           nb::sig(docs::kGetIntoSignature), docs::kGetInto)
      .def("batch_get_into", &get_batch_into, "keys"_a, "buffer_ptrs"_a, "sizes"_a,
           nb::sig(docs::kGetBatchIntoSignature), docs::kGetBatchInto)
      .def("batch_get_into_multi_buffers", &get_many, "keys"_a, "all_buffer_ptrs"_a, "all_sizes"_a,
           "prefer_alloc_in_same_node"_a = nb::bool_(false), nb::sig(docs::kGetManySignature),
           docs::kGetMany);
}

}  // namespace

void add_distributed_store(nb::module_& module) {
  StoreClass type(module, "MooncakeDistributedStore", docs::kStore);
  add_life(type);
  add_values(type);
  add_questions(type);
  add_registered_memory(type);
  set_home(type, "mooncake.store");
}

}  // namespace mooncake::python
