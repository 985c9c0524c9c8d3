#include "native/integers.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace mooncake::python {

namespace nb = nanobind;

namespace {

using Values = std::vector<std::uint64_t>;

enum class Taken : std::uint8_t { kYes, kNo, kOther };  // kOther: it is something else, try on

bool read_number(PyObject* number, std::uint64_t& value) {
  value = PyLong_AsSize_t(number);
  return value != static_cast<std::uint64_t>(-1) || PyErr_Occurred() == nullptr;
}

// Of something else than an int: its __index__ may change the list under our hands.
bool read_index(PyObject* item, std::uint64_t& value) {
  Py_INCREF(item);
  PyObject* const number = PyNumber_Index(item);
  Py_DECREF(item);
  if (number == nullptr) return false;
  const bool good = read_number(number, value);
  Py_DECREF(number);
  return good;
}

bool read_sequence(PyObject* source, Values& values) {
  PyObject* const items = PySequence_Fast(source, "");
  if (items == nullptr) return false;
  const auto size = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items));
  values.resize(size);
  std::uint64_t* const places = values.data();
  bool good = true;
  for (std::size_t i = 0; good && i < size; ++i) {
    if (static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items)) != size) {
      good = false;  // it was changed
      break;
    }
    PyObject* const item = PySequence_Fast_GET_ITEM(items, static_cast<Py_ssize_t>(i));
    good = PyLong_CheckExact(item) ? read_number(item, places[i]) : read_index(item, places[i]);
  }
  Py_DECREF(items);
  return good;
}

Taken read_words(const void* begin, std::size_t count, std::ptrdiff_t stride, bool is_signed,
                 Values& values) {
  values.resize(count);
  const char* from = static_cast<const char*>(begin);
  if (stride == sizeof(std::uint64_t) && count != 0) {
    std::memcpy(values.data(), from, count * sizeof(std::uint64_t));
  } else {
    for (std::uint64_t& value : values) {
      std::memcpy(&value, from, sizeof value);
      from += stride;
    }
  }
  const bool negative = is_signed && std::any_of(values.begin(), values.end(), [](auto value) {
                          return static_cast<std::int64_t>(value) < 0;
                        });
  return negative ? Taken::kNo : Taken::kYes;
}

// Of 64 bits, in the byte order of this machine: 'q', 'Q', 'l', 'L', with '@', '=' or '<' before.
bool is_word(std::string_view format, bool& is_signed) {
  static_assert(sizeof(long) == sizeof(std::uint64_t));
  const bool standard = format.starts_with('=') || format.starts_with('<');
  if (standard || format.starts_with('@')) format.remove_prefix(1);
  if (format.size() != 1) return false;
  is_signed = format == "q" || (format == "l" && !standard);
  return is_signed || format == "Q" || (format == "L" && !standard);
}

Taken read_buffer(PyObject* source, Values& values) {
  Py_buffer view;
  if (PyObject_GetBuffer(source, &view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return Taken::kOther;
  }
  Taken taken = Taken::kOther;
  bool is_signed = false;
  if (view.ndim == 1 && view.format != nullptr && is_word(view.format, is_signed)) {
    taken = read_words(view.buf, static_cast<std::size_t>(view.shape[0]), view.strides[0],
                       is_signed, values);
  }
  PyBuffer_Release(&view);
  return taken;
}

template <typename Word>
Taken read_dlpack(nb::handle source, Values& values) {
  using Array = nb::ndarray<const Word, nb::ndim<1>, nb::device::cpu>;
  Array array;
  if (!nb::try_cast<Array>(source, array, false)) return Taken::kOther;
  return read_words(array.data(), array.shape(0),
                    array.stride(0) * static_cast<std::ptrdiff_t>(sizeof(Word)),
                    std::is_signed_v<Word>, values);
}

Taken read_array(nb::handle source, Values& values) {
  if (PyObject_CheckBuffer(source.ptr()) != 0) return read_buffer(source.ptr(), values);
  if (PyObject_HasAttrString(source.ptr(), "__dlpack__") == 0) return Taken::kOther;
  const Taken taken = read_dlpack<std::int64_t>(source, values);
  return taken == Taken::kOther ? read_dlpack<std::uint64_t>(source, values) : taken;
}

bool read(nb::handle source, Values& values) {
  PyObject* const object = source.ptr();
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) {
    if (PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object)) return false;
    const Taken taken = read_array(source, values);
    if (taken != Taken::kOther) return taken == Taken::kYes;
    if (PySequence_Check(object) == 0) return false;
  }
  return read_sequence(object, values);
}

}  // namespace

bool read_argument(nb::handle source, IntegerList& list) noexcept {
  try {
    if (read(source, list.values)) return true;
  } catch (const std::bad_alloc&) {
    list.values.clear();
  }
  PyErr_Clear();
  return false;
}

}  // namespace mooncake::python
