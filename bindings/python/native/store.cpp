#include "native/store.h"

#include <nanobind/stl/unique_ptr.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "native/answers.h"
#include "native/buffer_views.h"
#include "native/memory_objects.h"
#include "native/replicas.h"
#include "native/store_calls.h"

namespace mooncake::python {

namespace {

// A value from this size on that is not as large as was expected is asked for again: a round trip
// costs less than a copy into memory that is touched for the first time.
constexpr std::size_t kLongCopy = 256u << 10;
constexpr int kQuestions = 3;

// All of them, under the GIL. Never destroyed: the interpreter may be gone before its objects are.
std::vector<DistributedStore*>& instances() {
  static auto& all = *new std::vector<DistributedStore*>;
  return all;
}

// Where get() puts a value: a bytes object made beforehand, which spares a copy, if the value fits;
// else memory of its own when it is small; else nowhere.
class Landing {
 public:
  explicit Landing(std::size_t expected) : expected_(expected) {
    if (expected == 0) return;
    object_ = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(expected));
    if (object_ == nullptr) PyErr_Clear();
  }
  ~Landing() { Py_XDECREF(object_); }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  // Any thread, without the GIL: nobody else knows the object yet.
  MutableBytes make_room(std::uint64_t size) {
    in_object_ = object_ != nullptr && size <= expected_;
    refused_ = !in_object_ && size >= kLongCopy ? size : 0;
    if (in_object_) return {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(object_)), size};
    if (refused_ != 0) return {};
    spare_.reset(new (std::nothrow) std::byte[size]);
    return {spare_.get(), spare_ ? size : 0};
  }
  // Size of a value that found no room; 0 = none.
  std::size_t refused() const { return refused_; }

  // Under the GIL. The first `size` bytes of the room.
  nb::bytes take(std::size_t size) {
    if (!in_object_) return nb::bytes(spare_.get(), size);
    // Shrinks in place; sets object_ to null when it fails.
    if (size < expected_ && _PyBytes_Resize(&object_, static_cast<Py_ssize_t>(size)) != 0) {
      throw nb::python_error();
    }
    return nb::steal<nb::bytes>(std::exchange(object_, nullptr));
  }

 private:
  PyObject* object_ = nullptr;
  const std::size_t expected_;
  bool in_object_ = false;
  std::size_t refused_ = 0;
  std::unique_ptr<std::byte[]> spare_;
};

// Reads all objects whole, in one question for their sizes and one for their bytes. `make_room(i,
// size)`, under the GIL, gives each its place: none where there is no memory. Bytes, or a negative
// code, for each key.
template <typename MakeRoom>
std::vector<std::int64_t> read_whole(StoreSession& session,
                                     const std::vector<std::string_view>& keys,
                                     MakeRoom make_room) {
  std::vector<std::int64_t> outcomes(keys.size());
  std::vector<std::size_t> left(keys.size());
  for (std::size_t i = 0; i < left.size(); ++i)
    left[i] = i;
  for (int question = 0; question < kQuestions && !left.empty(); ++question) {
    std::vector<std::string_view> asked;
    for (const std::size_t i : left)
      asked.push_back(keys[i]);
    const std::vector<std::int64_t> sizes =
        waiting([&] { return session.store().size_batch(asked); });
    std::vector<MutableBytes> rooms(left.size());
    std::vector<GetItem> items;
    std::vector<std::size_t> found;  // of each item
    for (std::size_t a = 0; a < left.size(); ++a) {
      outcomes[left[a]] = sizes[a];
      if (sizes[a] <= 0) continue;
      rooms[a] = make_room(left[a], static_cast<std::size_t>(sizes[a]));
      if (rooms[a].empty()) {
        base::log_error("get: no memory for a value of {} bytes", sizes[a]);
        outcomes[left[a]] = code_info(Code::kOutOfMemory).store;
        continue;
      }
      items.push_back({asked[a], std::span(&rooms[a], 1)});
      found.push_back(left[a]);
    }
    if (items.empty()) break;
    const std::vector<std::int64_t> read =
        waiting([&] { return session.store().get_into_batch(items); });
    left.clear();
    for (std::size_t f = 0; f < found.size(); ++f) {
      outcomes[found[f]] = read[f];
      // It has been replaced by a larger one meanwhile.
      if (read[f] == kRefused) left.push_back(found[f]);
    }
  }
  return outcomes;
}

int first_failure(const std::vector<std::int32_t>& codes) {
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int code) { return code != 0; });
  return failed == codes.end() ? 0 : *failed;
}

// A part of put_parts(), as a buffer of single bytes.
ConstBytes check_part(const BufferView& view, std::size_t index) {
  if (view.is_plain()) return view.bytes();
  const std::string message =
      "parts[" + std::to_string(index) + "]: a buffer of bytes with one dimension is needed";
  throw std::runtime_error(message);
}

}  // namespace

DistributedStore::DistributedStore() { instances().push_back(this); }

DistributedStore::~DistributedStore() {
  std::erase(instances(), this);
  if (auto session = take_session()) {
    const WithoutGil without_gil;
    session->close();
    session.reset();
  }
}

std::shared_ptr<StoreSession> DistributedStore::session() const {
  return owner_ == ::getpid() ? session_ : nullptr;
}

std::shared_ptr<StoreSession> DistributedStore::take_session() {
  std::shared_ptr<StoreSession> session = std::exchange(session_, nullptr);
  if (session == nullptr || owner_ == ::getpid()) return session;
  // Its threads aren't in this process, so that it can't be ended here: it stays as it is.
  new std::shared_ptr<StoreSession>(std::move(session));
  return nullptr;
}

int DistributedStore::setup(SetupTexts given, std::shared_ptr<EngineSession> engine) {
  Result<SetupPlan> plan = plan_setup(std::move(given));
  if (!plan) {
    base::log_error("setup: {}", plan.error().message());
    return kRefused;
  }
  if (interpreter_ends() || setting_up_ || session() != nullptr) {
    base::log_error("setup: {}", interpreter_ends() ? "the interpreter ends"
                                                    : "the store is set up already; close() it");
    return kRefused;
  }
  for (const std::string& notice : plan->notices)
    base::log_warning("setup: {}", notice);
  take_session();
  plan->options.interrupted = interrupted;
  const std::uint64_t closes = closes_;
  setting_up_ = true;
  std::shared_ptr<StoreSession> opened;
  std::int32_t code = 0;
  {
    const WithoutGil without_gil;
    auto session = StoreSession::open(*plan, std::move(engine));
    if (session) {
      opened = std::move(*session);
    } else {
      code = session.error().store_code();
      base::log_error("setup: {}", session.error().message());
    }
  }
  setting_up_ = false;
  const bool wanted = closes == closes_ && !interpreter_ends() && PyErr_Occurred() == nullptr;
  if (opened != nullptr && wanted) {
    session_ = std::move(opened);
    owner_ = ::getpid();
    return 0;
  }
  if (opened != nullptr) {
    code = kNotSetUp;
    const WithoutGil without_gil;
    opened.reset();
  }
  check_raised();
  return code;
}

int DistributedStore::close() {
  ++closes_;
  if (auto session = take_session()) {
    const WithoutGil without_gil;
    session->close();
    session.reset();
  }
  return 0;
}

int DistributedStore::health() {
  const auto open = session();
  if (open == nullptr) return 1;
  return waiting([&] { return open->store().health(); });
}

std::string DistributedStore::hostname() {
  const auto open = session();
  return open == nullptr ? std::string() : open->store().local_name();
}

int DistributedStore::write(Write kind, Key key, Buffer value, const ReplicaSettings* config) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  const BufferView view(value);
  const auto replicas = replicas_of("put", config, 1);
  if (!replicas) return kRefused;
  const ConstBytes part = view.bytes();
  const PutItem item{key.text, std::span(&part, 1)};
  return waiting([&] { return write_items(*open, kind, std::span(&item, 1), *replicas).front(); });
}

int DistributedStore::write_parts(Write kind, Key key, const nb::args& parts,
                                  const ReplicaSettings* config) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  const BufferViews views(parts);
  std::vector<ConstBytes> bytes;
  for (std::size_t i = 0; i < views.size(); ++i)
    bytes.push_back(check_part(views[i], i));
  const auto replicas = replicas_of("put_parts", config, 1);
  if (!replicas) return kRefused;
  const PutItem item{key.text, bytes};
  return waiting([&] { return write_items(*open, kind, std::span(&item, 1), *replicas).front(); });
}

int DistributedStore::write_batch(Write kind, const KeyList& keys, nb::handle values,
                                  const ReplicaSettings* config) {
  keys.check();
  const BufferViews views(values);
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  if (views.size() != keys.size()) {
    base::log_error("put_batch: {} keys and {} values", keys.size(), views.size());
    return kRefused;
  }
  const auto replicas = replicas_of("put_batch", config, keys.size());
  if (!replicas) return kRefused;
  std::vector<ConstBytes> bytes(keys.size());
  std::vector<PutItem> items(keys.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    bytes[i] = views[i].bytes();
    items[i] = {keys.keys()[i], std::span(&bytes[i], 1)};
  }
  return first_failure(waiting([&] { return write_items(*open, kind, items, *replicas); }));
}

nb::bytes DistributedStore::get(Key key) {
  const auto open = session();
  if (open == nullptr) return nb::bytes("", 0);
  std::size_t expected = last_size_;
  for (int question = 0; question < kQuestions; ++question) {
    Landing landing(expected);
    const Result<std::uint64_t> size = waiting([&] {
      return open->store().get(key.text,
                               [&](std::uint64_t room) { return landing.make_room(room); });
    });
    if (size) {
      last_size_ = static_cast<std::size_t>(*size);
      return landing.take(last_size_);
    }
    expected = landing.refused();
    if (expected == 0) break;
  }
  return nb::bytes("", 0);
}

nb::list DistributedStore::get_batch(const KeyList& keys) {
  keys.check();
  std::vector<nb::object> values(keys.size());
  std::vector<std::int64_t> sizes(keys.size(), kNotSetUp);
  if (const auto open = session()) {
    sizes = read_whole(*open, keys.keys(), [&](std::size_t i, std::size_t size) {
      PyObject* const made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
      PyErr_Clear();
      values[i] = nb::steal(made);
      if (made == nullptr) return MutableBytes();
      return MutableBytes(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(made)), size);
    });
  }
  nb::list list;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    PyObject* value = sizes[i] > 0 ? values[i].release().ptr() : nullptr;
    if (value == nullptr) value = PyBytes_FromStringAndSize(nullptr, 0);
    const Py_ssize_t size = sizes[i] > 0 ? static_cast<Py_ssize_t>(sizes[i]) : 0;
    if (value != nullptr && PyBytes_GET_SIZE(value) > size) _PyBytes_Resize(&value, size);
    if (value == nullptr) throw nb::python_error();
    list.append(nb::steal(value));
  }
  return list;
}

nb::object DistributedStore::get_buffer(Key key) {
  std::unique_ptr<BufferHandle> handle;
  const auto open = session();
  if (open == nullptr) return nb::none();
  const std::int64_t size =
      read_whole(*open, {key.text}, [&](std::size_t, std::size_t room) {
        handle = BufferHandle::make(room);
        return handle == nullptr ? MutableBytes() : MutableBytes(handle->data(), room);
      }).front();
  if (size <= 0) return nb::none();
  handle->shrink(static_cast<std::size_t>(size));
  return nb::cast(std::move(handle));
}

nb::object DistributedStore::get_pinned(Key key) {
  const auto open = session();
  if (open == nullptr) return nb::none();
  Result<PinnedObject> pinned = waiting([&] { return open->store().pin(key.text); });
  if (!pinned) return nb::none();
  return nb::cast(std::make_unique<PinnedBuffer>(*std::move(pinned)));
}

nb::list DistributedStore::get_buffers(const KeyList& keys) {
  keys.check();
  std::vector<std::unique_ptr<BufferHandle>> handles(keys.size());
  std::vector<std::int64_t> sizes(keys.size(), kNotSetUp);
  if (const auto open = session()) {
    sizes = read_whole(*open, keys.keys(), [&](std::size_t i, std::size_t size) {
      handles[i] = BufferHandle::make(size);
      return handles[i] == nullptr ? MutableBytes() : MutableBytes(handles[i]->data(), size);
    });
  }
  nb::list list;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (sizes[i] <= 0) {
      list.append(nb::none());
      continue;
    }
    handles[i]->shrink(static_cast<std::size_t>(sizes[i]));
    list.append(nb::cast(std::move(handles[i])));
  }
  return list;
}

int DistributedStore::is_exist(Key key) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return waiting([&] { return open->store().exist_batch(std::span(&key.text, 1)).front(); });
}

nb::object DistributedStore::exist_batch(const KeyList& keys) {
  keys.check();
  std::vector<std::int32_t> found(keys.size(), kNotSetUp);
  if (const auto open = session()) {
    found = waiting([&] { return open->store().exist_batch(keys.keys()); });
  }
  return answer(found, keys.is_array());
}

std::int64_t DistributedStore::size(Key key) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return waiting([&] { return open->store().size_batch(std::span(&key.text, 1)).front(); });
}

int DistributedStore::remove(Key key, bool force) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return waiting(
      [&] { return open->store().remove_batch(std::span(&key.text, 1), force).front(); });
}

nb::object DistributedStore::remove_batch(const KeyList& keys, bool force) {
  keys.check();
  std::vector<std::int32_t> codes(keys.size(), kNotSetUp);
  if (const auto open = session()) {
    codes = waiting([&] { return open->store().remove_batch(keys.keys(), force); });
  }
  return answer(codes, keys.is_array());
}

namespace {

// A number of objects, or the code of what failed, whose reason is logged.
std::int64_t count_or_code(const char* call, const Result<std::uint64_t>& count) {
  if (count) return static_cast<std::int64_t>(*count);
  base::log_error("{}: {}", call, count.error().message());
  return count.error().store_code();
}

}  // namespace

std::int64_t DistributedStore::remove_by_regex(const std::string& pattern, bool force) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return count_or_code("remove_by_regex",
                       waiting([&] { return open->store().remove_by_regex(pattern, force); }));
}

std::int64_t DistributedStore::remove_all(bool force) {
  const auto open = session();
  if (open == nullptr) return kNotSetUp;
  return count_or_code("remove_all", waiting([&] { return open->store().remove_all(force); }));
}

nb::list DistributedStore::replicas(Key key) {
  const auto open = session();
  if (open == nullptr) return nb::list();
  return replica_list(
      waiting([&] { return open->store().replicas_batch(std::span(&key.text, 1)).front(); }));
}

nb::dict DistributedStore::replicas_batch(const KeyList& keys) {
  keys.check();
  nb::dict found;
  const auto open = session();
  if (open == nullptr) return found;
  const auto replicas = waiting([&] { return open->store().replicas_batch(keys.keys()); });
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!replicas[i].empty()) found[keys.object(i)] = replica_list(replicas[i]);
  }
  return found;
}

std::vector<std::function<void()>> take_all_stores() {
  std::vector<std::function<void()>> closers;
  for (DistributedStore* instance : instances()) {
    ++instance->closes_;
    if (auto session = instance->take_session()) {
      closers.emplace_back([session] { session->close(); });
    }
  }
  return closers;
}

}  // namespace mooncake::python
