#include "native/keys.h"

#include <fmt/format.h>

#include <new>

#include "native/arguments.h"

namespace mooncake::python {

namespace nb = nanobind;

namespace {

constexpr std::string_view kAllowed =
    "keys: a sequence of str or bytes, or an array of dtype 'S' with one dimension, is needed, "
    "not ";

// "10s", as NumPy writes it.
bool is_text(const Py_buffer& view) {
  std::string_view format = view.format == nullptr ? "B" : view.format;
  return format.ends_with('s') && format.find_first_not_of("0123456789") == format.size() - 1;
}

std::string_view without_zeros(const char* text, std::size_t size) {
  while (size > 0 && text[size - 1] == '\0')
    --size;
  return {text, size};
}

}  // namespace

void KeyList::read(nb::handle source) noexcept {
  release();
  PyObject* const object = source.ptr();
  try {
    const bool one = PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object);
    if (one || PySequence_Check(object) == 0) {
      fault_ = fmt::format("{}{}", kAllowed, Py_TYPE(object)->tp_name);
    } else if (PyObject_CheckBuffer(object) != 0 &&
               PyObject_GetBuffer(object, &view_, PyBUF_RECORDS_RO) == 0) {
      if (is_text(view_)) {
        read_array();
      } else {  // an array of objects, or of another kind of text
        PyBuffer_Release(&view_);
        read_sequence(object);
      }
    } else {
      PyErr_Clear();
      read_sequence(object);
    }
  } catch (const std::bad_alloc&) {
    no_memory_ = true;
  }
  PyErr_Clear();
}

void KeyList::read_array() {
  if (view_.ndim != 1) {
    fault_ = fmt::format("{}one with {}", kAllowed, view_.ndim);
    return;
  }
  const auto size = static_cast<std::size_t>(view_.itemsize);
  const char* text = static_cast<const char*>(view_.buf);
  keys_.resize(static_cast<std::size_t>(view_.shape[0]));
  for (std::string_view& key : keys_) {
    key = without_zeros(text, size);
    text += view_.strides[0];
  }
}

// The tuple holds all items, also those that the caller's list loses meanwhile.
void KeyList::read_sequence(PyObject* source) {
  owner_ = nb::steal(PySequence_Tuple(source));
  if (!owner_.is_valid()) {
    fault_ = fmt::format("{}{}", kAllowed, Py_TYPE(source)->tp_name);
    return;
  }
  keys_.resize(static_cast<std::size_t>(PyTuple_GET_SIZE(owner_.ptr())));
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(owner_.ptr(), static_cast<Py_ssize_t>(i));
    Key key;
    if (!read_argument(item, key)) {
      const bool text = PyUnicode_Check(item) != 0;
      fault_ = text ? fmt::format("keys[{}]: this str can't be written as UTF-8", i)
                    : fmt::format("keys[{}]: a str or bytes is needed, not {}", i,
                                  Py_TYPE(item)->tp_name);
      return;
    }
    keys_[i] = key.text;
  }
}

nb::object KeyList::object(std::size_t index) const {
  if (is_array()) return nb::bytes(keys_[index].data(), keys_[index].size());
  return nb::borrow(PyTuple_GET_ITEM(owner_.ptr(), static_cast<Py_ssize_t>(index)));
}

void KeyList::check() const {
  if (no_memory_) throw std::bad_alloc();
  if (!fault_.empty()) throw nb::type_error(fault_.c_str());
}

void KeyList::release() {
  keys_.clear();
  owner_.reset();
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

}  // namespace mooncake::python
