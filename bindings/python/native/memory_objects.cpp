#include "native/memory_objects.h"

#include <new>
#include <utility>

#include "native/homes.h"

namespace mooncake::python {

namespace nb = nanobind;

std::unique_ptr<BufferHandle> BufferHandle::make(std::size_t size) {
  std::unique_ptr<std::byte[]> data(new (std::nothrow) std::byte[size]);
  if (data == nullptr) return nullptr;
  return std::unique_ptr<BufferHandle>(new BufferHandle(std::move(data), size));
}

void PinnedBuffer::release() {
  released_ = true;
  if (views_ == 0) object_.release();
}

void PinnedBuffer::end_view() {
  if (--views_ == 0 && released_) object_.release();
}

BufferLeaseView::BufferLeaseView(nb::handle whole, std::size_t offset, std::size_t size)
    : size_(size) {
  if (PyObject_GetBuffer(whole.ptr(), &whole_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  const auto length = static_cast<std::size_t>(whole_.len);
  if (offset > length || size > length - offset) {
    PyBuffer_Release(&whole_);
    throw nb::index_error("the part lies outside of its buffer");
  }
  data_ = static_cast<std::byte*>(whole_.buf) + offset;
}

namespace {

int view_handle(PyObject* self, Py_buffer* view, int flags) {
  BufferHandle& handle = *nb::inst_ptr<BufferHandle>(self);
  return PyBuffer_FillInfo(view, self, handle.data(), static_cast<Py_ssize_t>(handle.size()), 0,
                           flags);
}

int view_pinned(PyObject* self, Py_buffer* view, int flags) {
  PinnedBuffer& pinned = *nb::inst_ptr<PinnedBuffer>(self);
  if (pinned.released()) {
    PyErr_SetString(PyExc_BufferError, "PinnedBuffer: it has been released");
    view->obj = nullptr;
    return -1;
  }
  const ConstBytes bytes = pinned.data();
  constexpr int kReadOnly = 1;
  const int failed = PyBuffer_FillInfo(view, self, const_cast<std::byte*>(bytes.data()),
                                       static_cast<Py_ssize_t>(bytes.size()), kReadOnly, flags);
  if (failed == 0) pinned.begin_view();
  return failed;
}

void end_pinned_view(PyObject* self, Py_buffer*) { nb::inst_ptr<PinnedBuffer>(self)->end_view(); }

int view_lease(PyObject* self, Py_buffer* view, int flags) {
  BufferLeaseView& lease = *nb::inst_ptr<BufferLeaseView>(self);
  const int failed =
      PyBuffer_FillInfo(view, self, lease.data(), static_cast<Py_ssize_t>(lease.size()), 0, flags);
  if (failed == 0) lease.begin_view();
  return failed;
}

void end_view(PyObject* self, Py_buffer*) { nb::inst_ptr<BufferLeaseView>(self)->end_view(); }

PyType_Slot handle_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_handle)},
                              {0, nullptr}};
PyType_Slot pinned_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_pinned)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(end_pinned_view)},
                              {0, nullptr}};
PyType_Slot lease_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_lease)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(end_view)},
                             {0, nullptr}};

void add_pinned_buffer(nb::module_& module) {
  nb::class_<PinnedBuffer> pinned(
      module, "PinnedBuffer", nb::type_slots(pinned_slots),
      "The value of an object where it lies in memory of this host: a buffer of bytes that can "
      "only "
      "be read\n(memoryview(pinned), numpy.frombuffer(pinned, ...)). It stays as it is until "
      "release(), the end of a\n`with` block or of this object, and for as long as views of it are "
      "alive, whatever becomes of the\nobject, of the stores and of the process that gave the "
      "memory.");
  pinned
      .def(
          "ptr",
          [](PinnedBuffer& self) { return reinterpret_cast<std::uint64_t>(self.data().data()); },
          nb::sig("def ptr(self: mooncake.store.PinnedBuffer) -> int"),
          "Address of the first byte, good until the pin ends; 0 from then on.")
      .def(
          "size", [](PinnedBuffer& self) { return self.data().size(); },
          nb::sig("def size(self: mooncake.store.PinnedBuffer) -> int"),
          "Bytes; 0 once the pin has ended.")
      .def(
          "__len__", [](PinnedBuffer& self) { return self.data().size(); },
          nb::sig("def __len__(self: mooncake.store.PinnedBuffer) -> int"),
          "Bytes; 0 once the pin has ended.")
      .def("release", &PinnedBuffer::release,
           nb::sig("def release(self: mooncake.store.PinnedBuffer) -> None"),
           "Ends the pin now, or with the last view that is alive. Gives no further view. "
           "Idempotent.")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig(
              "def __enter__(self: mooncake.store.PinnedBuffer) -> mooncake.store.PinnedBuffer"))
      .def(
          "__exit__", [](PinnedBuffer& self, const nb::args&) { self.release(); },
          nb::sig("def __exit__(self: mooncake.store.PinnedBuffer, *args) -> None"), "release().");
  set_home(pinned, "mooncake.store");
}

}  // namespace

void add_memory_objects(nb::module_& module) {
  add_pinned_buffer(module);
  nb::class_<BufferHandle> handle(
      module, "BufferHandle", nb::type_slots(handle_slots),
      "The value of an object, in memory of its own: a writable buffer of bytes "
      "(memoryview(handle),\n"
      "numpy.frombuffer(handle, ...)). It lives as long as the handle and its views do, whatever\n"
      "becomes of the store.");
  handle
      .def(
          "ptr", [](BufferHandle& self) { return reinterpret_cast<std::uint64_t>(self.data()); },
          nb::sig("def ptr(self: mooncake.store.BufferHandle) -> int"),
          "Address of the first byte, good as long as the handle lives.")
      .def("size", &BufferHandle::size,
           nb::sig("def size(self: mooncake.store.BufferHandle) -> int"), "Bytes.")
      .def("__len__", &BufferHandle::size,
           nb::sig("def __len__(self: mooncake.store.BufferHandle) -> int"), "Bytes.");
  set_home(handle, "mooncake.store");

  nb::class_<BufferLeaseView> view(
      module, "BufferLeaseView", nb::type_slots(lease_slots),
      "The memory of a BufferLease as a writable buffer of bytes, which counts its views.");
  view.def(nb::init<nb::handle, std::size_t, std::size_t>())
      .def_prop_ro(
          "buffer",
          [](nb::handle self) {
            PyObject* const made = PyMemoryView_FromObject(self.ptr());
            if (made == nullptr) throw nb::python_error();
            return nb::steal(made);
          },
          "A new memoryview of all of it.")
      .def_prop_ro(
          "_address",
          [](BufferLeaseView& self) { return reinterpret_cast<std::uint64_t>(self.data()); })
      .def_prop_ro("_views", &BufferLeaseView::views);
  set_home(view, "mooncake.store");
}

}  // namespace mooncake::python
