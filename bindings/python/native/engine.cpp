#include "native/engine.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "native/arguments.h"
#include "native/engine_session.h"
#include "native/interpreter.h"

namespace mooncake::python {

namespace {

const std::int32_t kNotReady = code_info(Code::kNotReady).transfer;
const std::int32_t kRefused = code_info(Code::kInvalidArgument).transfer;

// All of them, under the GIL. Never destroyed: the interpreter may be gone before its objects are.
std::vector<PythonEngine*>& instances() {
  static auto& all = *new std::vector<PythonEngine*>;
  return all;
}

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// The code of a call that has failed, whose reason is logged; 0 for one that has not.
int code_of(const char* call, const Result<void>& outcome) {
  if (outcome) return 0;
  base::log_error("{}: {}", call, outcome.error().message());
  return outcome.error().transfer_code();
}

// A call that needs more memory than there is fails as any other does, not with MemoryError.
template <typename Run>
auto within_memory(const char* call, std::invoke_result_t<Run> failure, Run run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    base::log_error("{}: no memory for a request of this size", call);
    return failure;
  }
}

void check_lists(const TransferArguments& given) {
  check_list(given.buffers, "buffers");
  check_list(given.peer_addresses, "peer_buffer_addresses");
  check_list(given.lengths, "lengths");
}

bool make_requests(const TransferArguments& given, std::vector<TransferRequest>& requests) {
  const auto& sources = given.buffers.values;
  const auto& targets = given.peer_addresses.values;
  const auto& lengths = given.lengths.values;
  if (sources.size() != targets.size() || sources.size() != lengths.size()) {
    base::log_error("transfer with {}: {} buffers, {} peer addresses and {} lengths",
                    base::quote(given.target), sources.size(), targets.size(), lengths.size());
    return false;
  }
  requests.resize(sources.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i] = {given.opcode, pointer(sources[i]), SegmentHandle::kLocal, targets[i],
                   lengths[i]};
  }
  return true;
}

// Looks for gaps in the kernel's list of mappings, and does nothing else.
bool is_mapped(const void* begin, std::uint64_t length) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t skipped = reinterpret_cast<std::uint64_t>(begin) % page;
  return ::msync(static_cast<char*>(const_cast<void*>(begin)) - skipped, length + skipped,
                 MS_ASYNC) == 0;
}

// Copies within this process. False, not a crash, where `foreign`, one of the two, isn't mapped.
bool copy_checked(void* to, const void* from, std::uint64_t length, const void* foreign) {
  constexpr std::uint64_t kMost = 1u << 30;  // of one call: the kernel's own limit is above
  for (std::uint64_t done = 0; done < length;) {
    const std::uint64_t part = std::min(kMost, length - done);
    iovec target{static_cast<char*>(to) + done, part};
    iovec source{static_cast<char*>(const_cast<void*>(from)) + done, part};
    const ssize_t moved = foreign == to ? ::process_vm_writev(::getpid(), &source, 1, &target, 1, 0)
                                        : ::process_vm_readv(::getpid(), &target, 1, &source, 1, 0);
    if (moved < 0 && (errno == EPERM || errno == ENOSYS)) {  // a sandbox forbids these calls
      if (!is_mapped(foreign, length)) return false;
      std::memcpy(to, from, length);
      return true;
    }
    if (moved <= 0) return false;
    done += static_cast<std::uint64_t>(moved);
  }
  return true;
}

// The bytes of a str (as UTF-8) or of anything with the buffer protocol.
class Bytes {
 public:
  explicit Bytes(nb::handle source) {
    if (PyUnicode_Check(source.ptr())) {
      Py_ssize_t size = 0;
      data_ = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
      if (data_ == nullptr) throw nb::python_error();
      size_ = static_cast<std::uint64_t>(size);
      return;
    }
    if (PyObject_CheckBuffer(source.ptr()) == 0) {
      throw nb::type_error("write_bytes_to_buffer: bytes, a buffer or a str is needed");
    }
    view_.emplace(Buffer{source});
    data_ = view_->bytes().data();
    size_ = view_->bytes().size();
  }
  const void* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  std::optional<BufferView> view_;
  const void* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace

InnerTransferEngine::~InnerTransferEngine() {
  if (!session_) return;
  const WithoutGil without_gil;
  session_.reset();
}

PythonEngine::PythonEngine() { instances().push_back(this); }

PythonEngine::~PythonEngine() {
  std::erase(instances(), this);
  if (auto session = take_session()) {
    const WithoutGil without_gil;
    session.reset();
  }
}

std::shared_ptr<EngineSession> PythonEngine::session() const {
  return owner_ == ::getpid() ? session_ : nullptr;
}

std::shared_ptr<EngineSession> PythonEngine::take_session() {
  std::shared_ptr<EngineSession> session = std::exchange(session_, nullptr);
  if (session == nullptr || owner_ == ::getpid()) return session;
  // Its threads aren't in this process, so that it can't be ended here: it stays as it is.
  new std::shared_ptr<EngineSession>(std::move(session));
  return nullptr;
}

int PythonEngine::initialize(const EngineTexts& given) {
  const Result<EnginePlan> plan = plan_engine(given);
  if (!plan) {
    base::log_error("initialize: {}", plan.error().message());
    return kRefused;
  }
  if (interpreter_ends() || initializing_ || session() != nullptr) {
    base::log_error("initialize: {}",
                    interpreter_ends() ? "the interpreter ends" : "it is initialized already");
    return kRefused;
  }
  for (const std::string& notice : plan->notices)
    base::log_warning("initialize: {}", notice);
  take_session();
  initializing_ = true;
  std::shared_ptr<EngineSession> session;
  {
    const WithoutGil without_gil;
    Result<std::unique_ptr<TransferEngine>> created = TransferEngine::create(plan->options);
    if (created) {
      session = std::make_shared<EngineSession>(*std::move(created), plan->timeout);
    } else {
      base::log_error("initialize: {}", created.error().message());
    }
  }
  initializing_ = false;
  if (session != nullptr && interpreter_ends()) {
    const WithoutGil without_gil;
    session.reset();
  }
  if (session == nullptr) return -1;
  session_ = std::move(session);
  owner_ = ::getpid();
  return 0;
}

int PythonEngine::port() const {
  const auto open = session();
  return open ? open->engine().port() : kNotReady;
}

int PythonEngine::register_memory(Word address, Word length, const std::string& location) {
  const auto open = session();
  if (!open) return kNotReady;
  const WithoutGil without_gil;
  return code_of("register_memory",
                 open->engine().register_memory(pointer(address), length, location));
}

int PythonEngine::unregister_memory(Word address) {
  const auto open = session();
  if (!open) return kNotReady;
  const WithoutGil without_gil;
  return code_of("unregister_memory", open->engine().unregister_memory(pointer(address)));
}

int PythonEngine::register_batch(const IntegerList& addresses, const IntegerList& lengths,
                                 const std::string& location) {
  constexpr const char* kCall = "batch_register_memory";
  return within_memory(kCall, kRefused, [&]() -> int {
    check_list(addresses, "buffer_addresses");
    check_list(lengths, "capacities");
    const auto open = session();
    if (!open) return kNotReady;
    if (addresses.values.size() != lengths.values.size()) {
      base::log_error("{}: {} addresses and {} capacities", kCall, addresses.values.size(),
                      lengths.values.size());
      return kRefused;
    }
    std::vector<MemoryRange> ranges(lengths.values.size());
    for (std::size_t i = 0; i < ranges.size(); ++i)
      ranges[i] = {pointer(addresses.values[i]), lengths.values[i]};
    const WithoutGil without_gil;
    return code_of(kCall, open->engine().register_memory_batch(ranges, location));
  });
}

int PythonEngine::unregister_batch(const IntegerList& addresses) {
  constexpr const char* kCall = "batch_unregister_memory";
  return within_memory(kCall, kRefused, [&]() -> int {
    check_list(addresses, "buffer_addresses");
    const auto open = session();
    if (!open) return kNotReady;
    std::vector<void*> places(addresses.values.size());
    std::transform(addresses.values.begin(), addresses.values.end(), places.begin(), pointer);
    const WithoutGil without_gil;
    return code_of(kCall, open->engine().unregister_memory_batch(places));
  });
}

std::uint64_t PythonEngine::allocate_buffer(Word length) {
  const auto open = session();
  if (!open) return 0;
  const WithoutGil without_gil;
  const auto buffer = open->managed_memory().allocate(length);
  if (buffer) return reinterpret_cast<std::uint64_t>(*buffer);
  base::log_error("allocate_managed_buffer: {}", buffer.error().message());
  return 0;
}

int PythonEngine::free_buffer(Word address, Word length) {
  const auto open = session();
  if (!open) return kNotReady;
  const WithoutGil without_gil;
  return code_of("free_managed_buffer", open->managed_memory().free(pointer(address), length));
}

int PythonEngine::transfer(const TransferArguments& arguments) {
  const int code = within_memory("transfer", kRefused, [&]() -> int {
    check_lists(arguments);
    const auto open = session();
    if (!open) return kNotReady;
    std::vector<TransferRequest> requests;
    if (!make_requests(arguments, requests)) return kRefused;
    std::optional<Notification> notification;
    if (arguments.notification != nullptr) notification = *arguments.notification;
    const WithoutGil without_gil;
    return open->transfer(arguments.target, requests, notification);
  });
  check_raised();
  return code;
}

std::uint64_t PythonEngine::submit(const TransferArguments& arguments) {
  const auto batch = within_memory("batch_transfer_async", 0, [&]() -> std::uint64_t {
    check_lists(arguments);
    const auto open = session();
    std::vector<TransferRequest> requests;
    if (!open || !make_requests(arguments, requests)) return 0;
    const WithoutGil without_gil;
    return open->submit(arguments.target, std::move(requests));
  });
  check_raised();
  return batch;
}

int PythonEngine::wait(const IntegerList& batches) {
  const int code = within_memory("get_batch_transfer_status", kRefused, [&]() -> int {
    check_list(batches, "batch_ids");
    const auto open = session();
    if (!open) return kNotReady;
    const WithoutGil without_gil;
    return open->wait(batches.values);
  });
  check_raised();
  return code;
}

int PythonEngine::check(Word batch) {
  const auto open = session();
  if (!open) return kNotReady;
  const WithoutGil without_gil;
  return open->check(batch);
}

int PythonEngine::notify(const std::string& target, const Notification& notification) {
  const auto open = session();
  if (!open) return kNotReady;
  const Notification copy = notification;  // another thread may change the caller's
  int result = 0;
  {
    const WithoutGil without_gil;
    result = open->notify(target, copy);
  }
  check_raised();
  return result;
}

std::vector<Notification> PythonEngine::take_notifications() {
  const auto open = session();
  if (!open) return {};
  const WithoutGil without_gil;
  return open->engine().take_notifications();
}

int PythonEngine::probe(const std::string& target) {
  const auto open = session();
  if (!open) return kNotReady;
  int result = 0;
  {
    const WithoutGil without_gil;
    result = open->probe(target);
  }
  check_raised();
  return result;
}

std::uint64_t PythonEngine::first_buffer(const std::string& target) {
  const auto open = session();
  if (!open) return 0;
  std::uint64_t result = 0;
  {
    const WithoutGil without_gil;
    result = open->first_buffer(target);
  }
  check_raised();
  return result;
}

int PythonEngine::write_bytes(Word address, nb::handle source, Word size) {
  const Bytes bytes(source);
  const std::uint64_t length = size;
  if (length > bytes.size()) {
    base::log_error("write_bytes_to_buffer: {} bytes of {} that there are", length, bytes.size());
    return kRefused;
  }
  const WithoutGil without_gil;
  if (copy_checked(pointer(address), bytes.data(), length, pointer(address))) return 0;
  base::log_error("write_bytes_to_buffer: {} bytes at {:#x} can't be written", length,
                  address.value);
  return kRefused;
}

nb::bytes PythonEngine::read_bytes(Word address, Word size) {
  const std::uint64_t length = size;
  PyObject* const object =
      length > PY_SSIZE_T_MAX / 2
          ? nullptr
          : PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(length));
  if (object == nullptr) {
    PyErr_Clear();
    base::log_error("read_bytes_from_buffer: no room for {} bytes", length);
    return nb::bytes("", 0);
  }
  nb::bytes bytes = nb::steal<nb::bytes>(object);
  {
    const WithoutGil without_gil;
    if (copy_checked(PyBytes_AS_STRING(object), pointer(address), length, pointer(address)))
      return bytes;
  }
  base::log_error("read_bytes_from_buffer: {} bytes at {:#x} can't be read", length, address.value);
  return nb::bytes("", 0);
}

std::vector<std::function<void()>> take_all_engines() {
  std::vector<std::function<void()>> ends;
  for (PythonEngine* instance : instances()) {
    auto session = instance->take_session();
    if (session != nullptr) ends.emplace_back([session] { session->stop(); });
  }
  return ends;
}

}  // namespace mooncake::python
