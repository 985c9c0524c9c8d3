// The values of a batch of objects, as Python callers pass them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "native/arguments.h"

namespace mooncake::python {

// A sequence of buffers, held in place. Made and destroyed under the GIL.
class BufferViews {
 public:
  // Raises TypeError that names what is no buffer, BufferError for one that isn't contiguous.
  explicit BufferViews(nb::handle values) {
    PyObject* const tuple = PyUnicode_Check(values.ptr()) || PyBytes_Check(values.ptr())
                                ? nullptr
                                : PySequence_Tuple(values.ptr());
    PyErr_Clear();
    if (tuple == nullptr) throw nb::type_error("values: a sequence of buffers is needed");
    owner_ = nb::steal(tuple);
    const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(tuple));
    views_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      PyObject* const value = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
      if (PyObject_CheckBuffer(value) == 0) {
        const std::string message =
            "values[" + std::to_string(i) + "]: a buffer is needed, not " + Py_TYPE(value)->tp_name;
        throw nb::type_error(message.c_str());
      }
      views_.push_back(std::make_unique<BufferView>(Buffer{value}));
    }
  }
  std::size_t size() const { return views_.size(); }
  const BufferView& operator[](std::size_t index) const { return *views_[index]; }

 private:
  nb::object owner_;
  std::vector<std::unique_ptr<BufferView>> views_;
};

}  // namespace mooncake::python
