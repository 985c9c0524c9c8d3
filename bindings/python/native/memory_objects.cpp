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
PyType_Slot lease_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_lease)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(end_view)},
                             {0, nullptr}};

}  // namespace

void add_memory_objects(nb::module_& module) {
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
