#include "native/arguments.h"

namespace mooncake::python {

namespace {

// What a caster may not leave behind when it says no.
bool no() noexcept {
  PyErr_Clear();
  return false;
}

}  // namespace

BufferView::BufferView(Buffer buffer) {
  if (PyObject_GetBuffer(buffer.object.ptr(), &view_, PyBUF_ND) != 0) throw nb::python_error();
}

bool read_argument(nb::handle source, Key& key) noexcept {
  if (PyUnicode_Check(source.ptr())) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
    if (text == nullptr) return no();
    key.text = {text, static_cast<std::size_t>(size)};
    return true;
  }
  if (!PyBytes_Check(source.ptr())) return false;
  key.text = {PyBytes_AS_STRING(source.ptr()),
              static_cast<std::size_t>(PyBytes_GET_SIZE(source.ptr()))};
  return true;
}

bool read_argument(nb::handle source, Integer& integer) noexcept {
  PyObject* const digits = PyNumber_ToBase(source.ptr(), 10);
  if (digits == nullptr) return no();
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(digits, &size);
  if (text != nullptr) integer.digits.assign(text, static_cast<std::size_t>(size));
  Py_DECREF(digits);
  return text != nullptr || no();
}

bool read_argument(nb::handle source, Truth& truth) noexcept {
  // numpy.bool_ has no __index__ any more, and is no subclass of bool.
  const char* const type = Py_TYPE(source.ptr())->tp_name;
  const bool logical =
      PyIndex_Check(source.ptr()) || std::string_view(type).starts_with("numpy.bool");
  if (!logical) return false;
  const int answer = PyObject_IsTrue(source.ptr());
  if (answer < 0) return no();
  truth.value = answer != 0;
  return true;
}

bool read_argument(nb::handle source, Buffer& buffer) noexcept {
  buffer.object = source;
  return PyObject_CheckBuffer(source.ptr()) != 0;
}

}  // namespace mooncake::python
