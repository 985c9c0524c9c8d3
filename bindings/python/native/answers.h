// What the calls of a store give back for a batch.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace mooncake::python {

// A list of ints; where the keys came as an array, an array of int64.
template <typename Number>
nanobind::object answer(const std::vector<Number>& numbers, bool as_array) {
  namespace nb = nanobind;
  if (as_array) {
    auto* const copy = new std::vector<std::int64_t>(numbers.begin(), numbers.end());
    const nb::capsule owner(
        copy, [](void* held) noexcept { delete static_cast<std::vector<std::int64_t>*>(held); });
    return nb::cast(
        nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>(copy->data(), {copy->size()}, owner));
  }
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(numbers.size()));
  if (list == nullptr) throw nb::python_error();
  nb::object owner = nb::steal(list);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    PyObject* const number = PyLong_FromLongLong(numbers[i]);
    if (number == nullptr) throw nb::python_error();
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), number);
  }
  return owner;
}

}  // namespace mooncake::python
