#include "native/engine_module.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "native/arguments.h"
#include "native/engine.h"
#include "native/engine_docs.h"
#include "native/engine_session.h"
#include "native/homes.h"

namespace mooncake::python {

namespace {

using namespace nanobind::literals;

using Engine = nb::class_<PythonEngine>;

// Those of the published package, and none.
constexpr std::array<std::string_view, 14> kHints = {
    "",    "rdma",   "mnnvl",        "shm", "nvlink", "gds",    "io_uring",
    "tcp", "ascend", "sunrise_link", "tpu", "ub",     "mpcomm", "unspec"};

void check_hint(const std::string& hint) {
  if (std::find(kHints.begin(), kHints.end(), hint) != kHints.end()) return;
  const std::string message = fmt::format("transport_hint: '{}' is not a transport", hint);
  throw nb::value_error(message.c_str());
}

// One piece.
struct Piece {
  Piece(std::uint64_t buffer, std::uint64_t peer_address, std::uint64_t length)
      : buffers{{buffer}}, peer_addresses{{peer_address}}, lengths{{length}} {}
  IntegerList buffers, peer_addresses, lengths;
};

int transfer_one(PythonEngine& self, const std::string& target, Word buffer, Word peer_address,
                 Word length, Opcode opcode, const Notification* notify, const std::string& hint) {
  check_hint(hint);
  const Piece piece(buffer, peer_address, length);
  return self.transfer(
      {target, piece.buffers, piece.peer_addresses, piece.lengths, opcode, notify});
}

template <Opcode opcode>
int transfer_one_way(PythonEngine& self, const std::string& target, Word buffer, Word peer_address,
                     Word length, const std::string& hint) {
  return transfer_one(self, target, buffer, peer_address, length, opcode, nullptr, hint);
}

std::uint64_t submit_one(PythonEngine& self, const std::string& target, Word buffer,
                         Word peer_address, Word length, const std::string& hint) {
  check_hint(hint);
  const Piece piece(buffer, peer_address, length);
  return self.submit(
      {target, piece.buffers, piece.peer_addresses, piece.lengths, Opcode::kWrite, nullptr});
}

int transfer_batch(PythonEngine& self, const std::string& target, const IntegerList& buffers,
                   const IntegerList& peer_addresses, const IntegerList& lengths, Opcode opcode,
                   const Notification* notify, const std::string& hint) {
  check_hint(hint);
  return self.transfer({target, buffers, peer_addresses, lengths, opcode, notify});
}

template <Opcode opcode>
int transfer_batch_one_way(PythonEngine& self, const std::string& target,
                           const IntegerList& buffers, const IntegerList& peer_addresses,
                           const IntegerList& lengths, const std::string& hint) {
  return transfer_batch(self, target, buffers, peer_addresses, lengths, opcode, nullptr, hint);
}

std::uint64_t submit_batch(PythonEngine& self, const std::string& target,
                           const IntegerList& buffers, const IntegerList& peer_addresses,
                           const IntegerList& lengths, Opcode opcode, const std::string& hint) {
  check_hint(hint);
  return self.submit({target, buffers, peer_addresses, lengths, opcode, nullptr});
}

template <Opcode opcode>
std::uint64_t submit_batch_one_way(PythonEngine& self, const std::string& target,
                                   const IntegerList& buffers, const IntegerList& peer_addresses,
                                   const IntegerList& lengths, const std::string& hint) {
  return submit_batch(self, target, buffers, peer_addresses, lengths, opcode, hint);
}

// Its names are Read and Write; READ and WRITE are those of the published documentation.
nb::object add_opcode(nb::module_& module) {
  nb::enum_<Opcode> type(module, "TransferOpcode", "Direction of a transfer.", nb::is_arithmetic());
  type.value("Read", Opcode::kRead, "From the peer to here.")
      .value("Write", Opcode::kWrite, "From here to the peer.")
      .export_values();
  set_home(type, "mooncake.engine");
  nb::setattr(type, "READ", type.attr("Read"));
  nb::setattr(type, "WRITE", type.attr("Write"));
  return type;
}

void add_setup(Engine& type) {
  type.def(nb::init<>(), nb::sig(docs::kInit))
      .def(
          "initialize",
          [](PythonEngine& self, const std::string& local_hostname,
             const std::string& metadata_server, const std::string& protocol,
             const std::string& device_name) {
            return self.initialize({local_hostname, metadata_server, protocol, device_name, ""});
          },
          nb::sig(docs::kInitializeSignature), docs::kInitialize)
      .def(
          "initialize_ext",
          [](PythonEngine& self, const std::string& local_hostname,
             const std::string& metadata_server, const std::string& protocol,
             const std::string& device_name, const std::string& metadata_type) {
            return self.initialize(
                {local_hostname, metadata_server, protocol, device_name, metadata_type});
          },
          nb::sig(docs::kInitializeExtSignature), docs::kInitializeExt)
      .def("get_rpc_port", &PythonEngine::port, nb::sig(docs::kPortSignature), docs::kPort)
      .def(
          "get_engine",
          [](const PythonEngine& self) -> nb::object {
            auto session = self.session();
            if (!session) return nb::none();
            return nb::cast(InnerTransferEngine(std::move(session)));
          },
          nb::sig(docs::kGetEngineSignature), docs::kGetEngine)
      .def(
          "get_engine_ptr",
          [](const PythonEngine& self) {
            const auto session = self.session();
            return session ? reinterpret_cast<std::uint64_t>(&session->engine()) : 0;
          },
          nb::sig(docs::kGetEnginePtrSignature), docs::kGetEnginePtr)
      .def(
          "warmup_efa_segment", [](PythonEngine&, const std::string&) { return 0; },
          "segment_name"_a, nb::sig(docs::kWarmupSignature), docs::kWarmup);
}

void add_memory(Engine& type) {
  type.def("register_memory", &PythonEngine::register_memory, "buffer_addr"_a, "capacity"_a,
           "location"_a = "*", nb::sig(docs::kRegisterSignature), docs::kRegister)
      .def("unregister_memory", &PythonEngine::unregister_memory,
           nb::sig(docs::kUnregisterSignature), docs::kUnregister)
      .def("batch_register_memory", &PythonEngine::register_batch, "buffer_addresses"_a,
           "capacities"_a, "location"_a = "*", nb::sig(docs::kRegisterBatchSignature),
           docs::kRegisterBatch)
      .def("batch_unregister_memory", &PythonEngine::unregister_batch,
           nb::sig(docs::kUnregisterBatchSignature), docs::kUnregisterBatch)
      .def("allocate_managed_buffer", &PythonEngine::allocate_buffer,
           nb::sig(docs::kAllocateSignature), docs::kAllocate)
      .def("free_managed_buffer", &PythonEngine::free_buffer, nb::sig(docs::kFreeSignature),
           docs::kFree)
      .def("write_bytes_to_buffer", &PythonEngine::write_bytes, nb::sig(docs::kWriteBytesSignature),
           docs::kWriteBytes)
      .def("read_bytes_from_buffer", &PythonEngine::read_bytes, nb::sig(docs::kReadBytesSignature),
           docs::kReadBytes);
}

void add_batches(Engine& type) {
  type.def("batch_transfer_async_write", &submit_batch_one_way<Opcode::kWrite>, "target_hostname"_a,
           "buffers"_a, "peer_buffer_addresses"_a, "lengths"_a, "transport_hint"_a = "",
           nb::sig(docs::kAsyncWriteSignature), docs::kAsyncWrite)
      .def("batch_transfer_async_read", &submit_batch_one_way<Opcode::kRead>, "target_hostname"_a,
           "buffers"_a, "peer_buffer_addresses"_a, "lengths"_a, "transport_hint"_a = "",
           nb::sig(docs::kAsyncReadSignature), docs::kAsyncRead)
      .def("batch_transfer_async", &submit_batch, "target_hostname"_a, "buffers"_a,
           "peer_buffer_addresses"_a, "lengths"_a, "opcode"_a, "transport_hint"_a = "",
           nb::sig(docs::kAsyncSignature), docs::kAsync)
      .def("transfer_submit_write", &submit_one, "target_hostname"_a, "buffer"_a,
           "peer_buffer_address"_a, "length"_a, "transport_hint"_a = "",
           nb::sig(docs::kSubmitWriteSignature), docs::kSubmitWrite)
      .def("get_batch_transfer_status", &PythonEngine::wait, nb::sig(docs::kWaitSignature),
           docs::kWait)
      .def("transfer_check_status", &PythonEngine::check, nb::sig(docs::kCheckSignature),
           docs::kCheck);
}

void add_peers(Engine& type) {
  type.def("get_first_buffer_address", &PythonEngine::first_buffer,
           nb::sig(docs::kFirstBufferSignature), docs::kFirstBuffer)
      .def("send_probe", &PythonEngine::probe, "peer_server_name"_a, nb::sig(docs::kProbeSignature),
           docs::kProbe)
      .def("get_notifies", &PythonEngine::take_notifications, nb::sig(docs::kNotifiesSignature),
           docs::kNotifies)
      .def(
          "send_notify",
          [](PythonEngine& self, const std::string& target, Key name, Key message) {
            return self.notify(target, {std::string(name.text), std::string(message.text)});
          },
          "target_hostname"_a, "name"_a, "msg"_a, nb::sig(docs::kSendNotifySignature),
          docs::kSendNotify);
}

nb::object text_of(const std::string& bytes) {
  return nb::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape"));
}

void add_notify(nb::module_& module) {
  nb::class_<Notification> type(module, "TransferNotify", docs::kNotify);
  type.def(nb::init<>(), nb::sig("def __init__(self: mooncake.engine.TransferNotify) -> None"))
      .def(nb::init<std::string, std::string>(), "name"_a, "msg"_a,
           nb::sig("def __init__(self: mooncake.engine.TransferNotify, name: str, msg: str) -> "
                   "None"))
      .def_prop_rw(
          "name", [](const Notification& self) { return text_of(self.name); },
          [](Notification& self, const std::string& text) { self.name = text; },
          "What it is about; a str.")
      .def_prop_rw(
          "msg", [](const Notification& self) { return text_of(self.message); },
          [](Notification& self, const std::string& text) { self.message = text; },
          "What it says; a str.");
  set_home(type, "mooncake.engine");
}

void add_transfers(Engine& type) {
  type.def("transfer_sync_write", &transfer_one_way<Opcode::kWrite>, "target_hostname"_a,
           "buffer"_a, "peer_buffer_address"_a, "length"_a, "transport_hint"_a = "",
           nb::sig(docs::kSyncWriteSignature), docs::kSyncWrite)
      .def("transfer_sync_read", &transfer_one_way<Opcode::kRead>, "target_hostname"_a, "buffer"_a,
           "peer_buffer_address"_a, "length"_a, "transport_hint"_a = "",
           nb::sig(docs::kSyncReadSignature), docs::kSyncRead)
      .def("transfer_sync", &transfer_one, "target_hostname"_a, "buffer"_a, "peer_buffer_address"_a,
           "length"_a, "opcode"_a, "notify"_a = nb::none(), "transport_hint"_a = "",
           nb::sig(docs::kSyncSignature), docs::kSync)
      .def("batch_transfer_sync_write", &transfer_batch_one_way<Opcode::kWrite>,
           "target_hostname"_a, "buffers"_a, "peer_buffer_addresses"_a, "lengths"_a,
           "transport_hint"_a = "", nb::sig(docs::kBatchWriteSignature), docs::kBatchWrite)
      .def("batch_transfer_sync_read", &transfer_batch_one_way<Opcode::kRead>, "target_hostname"_a,
           "buffers"_a, "peer_buffer_addresses"_a, "lengths"_a, "transport_hint"_a = "",
           nb::sig(docs::kBatchReadSignature), docs::kBatchRead)
      .def("batch_transfer_sync", &transfer_batch, "target_hostname"_a, "buffers"_a,
           "peer_buffer_addresses"_a, "lengths"_a, "opcode"_a, "notify"_a = nb::none(),
           "transport_hint"_a = "", nb::sig(docs::kBatchSignature), docs::kBatch);
}

}  // namespace

void add_transfer_engine(nb::module_& module) {
  // What the published package was built with.
  for (const char* name : {"SUPPORT_CUDA", "SUPPORT_EFA", "SUPPORT_HIP", "SUPPORT_INTRA_NVLINK",
                           "SUPPORT_MNNVL", "SUPPORT_MUSA"}) {
    module.attr(name) = false;
  }
  const nb::object opcode = add_opcode(module);
  add_notify(module);
  set_home(nb::class_<InnerTransferEngine>(module, "InnerTransferEngine",
                                           "A native engine that is shared: see get_engine()."),
           "mooncake.engine");
  Engine type(module, "TransferEngine", docs::kEngine);
  add_setup(type);
  add_memory(type);
  add_transfers(type);
  add_batches(type);
  add_peers(type);
  type.attr("TransferOpcode") = opcode;
  set_home(type, "mooncake.engine");
}

}  // namespace mooncake::python
