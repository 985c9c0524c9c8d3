#include "native/store.h"

#include <unistd.h>

#include <new>
#include <utility>
#include <vector>

#include "base/log.h"
#include "native/interpreter.h"

namespace mooncake::python {

namespace {

const std::int32_t kNotSetUp = code_info(Code::kNotReady).store;
const std::int32_t kRefused = code_info(Code::kInvalidArgument).store;

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

}  // namespace

DistributedStore::DistributedStore() { instances().push_back(this); }

DistributedStore::~DistributedStore() {
  std::erase(instances(), this);
  if (auto store = take_store()) {
    const WithoutGil without_gil;
    store->close();
    store.reset();
  }
}

std::shared_ptr<Store> DistributedStore::open_store() const {
  return owner_ == ::getpid() ? store_ : nullptr;
}

std::shared_ptr<Store> DistributedStore::take_store() {
  std::shared_ptr<Store> store = std::exchange(store_, nullptr);
  if (store == nullptr || owner_ == ::getpid()) return store;
  // Its threads aren't in this process, so that it can't be ended here: it stays as it is.
  new std::shared_ptr<Store>(std::move(store));
  return nullptr;
}

int DistributedStore::setup(SetupTexts given) {
  Result<SetupPlan> plan = plan_setup(std::move(given));
  if (!plan) {
    base::log_error("setup: {}", plan.error().message());
    return kRefused;
  }
  if (interpreter_ends() || setting_up_ || open_store() != nullptr) {
    base::log_error("setup: {}", interpreter_ends() ? "the interpreter ends"
                                                    : "the store is set up already; close() it");
    return kRefused;
  }
  for (const std::string& notice : plan->notices)
    base::log_warning("setup: {}", notice);
  take_store();
  plan->options.interrupted = interrupted;
  const std::uint64_t closes = closes_;
  setting_up_ = true;
  std::shared_ptr<Store> store;
  std::int32_t code = 0;
  {
    const WithoutGil without_gil;
    Result<std::unique_ptr<Store>> created = Store::create(plan->options);
    if (created) {
      store = std::move(*created);
    } else {
      code = created.error().store_code();
      base::log_error("setup: {}", created.error().message());
    }
  }
  setting_up_ = false;
  if (store != nullptr && closes == closes_ && !interpreter_ends() && PyErr_Occurred() == nullptr) {
    store_ = std::move(store);
    owner_ = ::getpid();
    return 0;
  }
  if (store != nullptr) {
    code = kNotSetUp;
    const WithoutGil without_gil;
    store.reset();
  }
  check_raised();
  return code;
}

int DistributedStore::put(Key key, Buffer value, const ReplicateConfig* config) {
  const std::shared_ptr<Store> store = open_store();
  if (store == nullptr) return kNotSetUp;
  const BufferView view(value);
  // A copy: the caller may change its own as soon as the GIL is free.
  const ReplicateConfig replicas = config != nullptr ? *config : ReplicateConfig{};
  const ConstBytes part = view.bytes();
  const PutItem item{key.text, std::span(&part, 1)};
  std::int32_t code = 0;
  {
    const WithoutGil without_gil;
    code = store->put_batch(std::span(&item, 1), replicas).front();
  }
  check_raised();
  return code;
}

nb::bytes DistributedStore::get(Key key) {
  const std::shared_ptr<Store> store = open_store();
  if (store == nullptr) return nb::bytes("", 0);
  std::size_t expected = last_size_;
  for (int question = 0; question < kQuestions; ++question) {
    Landing landing(expected);
    Result<std::uint64_t> size = fail(Code::kNotReady);
    {
      const WithoutGil without_gil;
      size = store->get(key.text, [&](std::uint64_t room) { return landing.make_room(room); });
    }
    check_raised();
    if (size) {
      last_size_ = static_cast<std::size_t>(*size);
      return landing.take(last_size_);
    }
    expected = landing.refused();
    if (expected == 0) break;
  }
  return nb::bytes("", 0);
}

int DistributedStore::is_exist(Key key) {
  const std::shared_ptr<Store> store = open_store();
  if (store == nullptr) return kNotSetUp;
  std::int32_t code = 0;
  {
    const WithoutGil without_gil;
    code = store->exist_batch(std::span(&key.text, 1)).front();
  }
  check_raised();
  return code;
}

int DistributedStore::remove(Key key, bool force) {
  const std::shared_ptr<Store> store = open_store();
  if (store == nullptr) return kNotSetUp;
  std::int32_t code = 0;
  {
    const WithoutGil without_gil;
    code = store->remove_batch(std::span(&key.text, 1), force).front();
  }
  check_raised();
  return code;
}

int DistributedStore::close() {
  ++closes_;
  if (auto store = take_store()) {
    const WithoutGil without_gil;
    store->close();
    store.reset();
  }
  return 0;
}

std::vector<std::function<void()>> take_all_stores() {
  std::vector<std::function<void()>> closers;
  for (DistributedStore* instance : instances()) {
    ++instance->closes_;
    if (auto store = instance->take_store()) closers.emplace_back([store] { store->close(); });
  }
  return closers;
}

}  // namespace mooncake::python
