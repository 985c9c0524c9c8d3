#include "native/integers.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "base/text.h"

namespace mooncake::python {

namespace nb = nanobind;

namespace {

constexpr std::size_t kMostShown = 80;  // bytes of what was given
constexpr std::string_view kAllowed =
    "a sequence of ints, or an array of int64 or uint64 with one dimension, is needed, not ";
constexpr std::string_view kRange = "is not within 0 and 2^64 - 1";

enum class Taken : std::uint8_t { kYes, kNo, kOther };  // kOther: it is no array, try on

// As Python shows it; its type, where that fails. Steals `text`.
std::string shown(PyObject* text, PyObject* object) {
  const char* const bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  std::string_view words = bytes == nullptr ? Py_TYPE(object)->tp_name : bytes;
  std::string cut(base::utf8_prefix(words, kMostShown));
  if (cut.size() < words.size()) cut += "...";
  Py_XDECREF(text);
  PyErr_Clear();
  return cut;
}

// Empty when there is no such attribute.
std::string attribute(PyObject* object, const char* name) {
  PyObject* const value = PyObject_GetAttrString(object, name);
  if (value == nullptr) {
    PyErr_Clear();
    return {};
  }
  std::string text = shown(PyObject_Str(value), value);
  Py_DECREF(value);
  return text;
}

Taken refuse_array(PyObject* source, const Py_buffer* view, IntegerList& list) {
  const std::string dtype = attribute(source, "dtype");
  const std::string device = attribute(source, "device");
  list.fault = fmt::format(": {}{}", kAllowed, Py_TYPE(source)->tp_name);
  if (!dtype.empty()) {
    list.fault += fmt::format(" of dtype {} and shape {}", dtype, attribute(source, "shape"));
  } else if (view != nullptr) {
    list.fault += fmt::format(" of format '{}' and {} dimensions",
                              view->format == nullptr ? "B" : view->format, view->ndim);
  }
  if (!device.empty() && device != "cpu") list.fault += " on " + device;
  return Taken::kNo;
}

bool refuse_item(PyObject* item, std::size_t index, bool is_int, IntegerList& list) {
  PyErr_Clear();
  list.fault = fmt::format("[{}]: {} ({}) {}", index, shown(PyObject_Repr(item), item),
                           Py_TYPE(item)->tp_name, is_int ? kRange : "is not an int");
  return false;
}

bool read_number(PyObject* number, std::uint64_t& value) {
  value = PyLong_AsSize_t(number);
  return value != static_cast<std::uint64_t>(-1) || PyErr_Occurred() == nullptr;
}

bool is_bool(PyObject* item) {
  return PyBool_Check(item) || std::string_view(Py_TYPE(item)->tp_name).starts_with("numpy.bool");
}

// Of something else than an int: its __index__ may change the list under our hands.
bool read_index(PyObject* item, std::size_t index, std::uint64_t& value, IntegerList& list) {
  Py_INCREF(item);
  PyObject* const number = is_bool(item) ? nullptr : PyNumber_Index(item);
  const bool good = number != nullptr && read_number(number, value);
  if (!good) refuse_item(item, index, number != nullptr, list);
  Py_XDECREF(number);
  Py_DECREF(item);
  return good;
}

bool read_sequence(PyObject* source, IntegerList& list) {
  PyObject* const items = PySequence_Fast(source, "");
  if (items == nullptr) {
    list.fault = fmt::format(": {}{}", kAllowed, Py_TYPE(source)->tp_name);
    return false;
  }
  const nb::object owner = nb::steal(items);
  const auto size = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items));
  const std::size_t before = list.values.size();
  list.values.resize(before + size);
  std::uint64_t* const places = list.values.data() + before;
  for (std::size_t i = 0; i < size; ++i) {
    if (static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items)) != size) {
      list.fault = ": it was changed while it was read";
      return false;
    }
    PyObject* const item = PySequence_Fast_GET_ITEM(items, static_cast<Py_ssize_t>(i));
    if (PyLong_CheckExact(item)) {
      if (!read_number(item, places[i])) return refuse_item(item, i, true, list);
    } else if (!read_index(item, i, places[i], list)) {
      return false;
    }
  }
  return true;
}

// How the words of an array lie.
struct Layout {
  std::ptrdiff_t stride = sizeof(std::uint64_t);  // bytes
  bool is_signed = false;
  bool swapped = false;  // of the other byte order than this machine's
};

Taken read_words(const void* begin, std::size_t count, const Layout& layout, IntegerList& list) {
  const std::size_t before = list.values.size();
  list.values.resize(before + count);
  const std::span<std::uint64_t> values = std::span(list.values).subspan(before);
  const char* from = static_cast<const char*>(begin);
  if (layout.stride == sizeof(std::uint64_t) && count != 0) {
    std::memcpy(values.data(), from, values.size_bytes());
  } else {
    for (std::uint64_t& value : values) {
      std::memcpy(&value, from, sizeof value);
      from += layout.stride;
    }
  }
  if (layout.swapped) {
    for (std::uint64_t& value : values)
      value = __builtin_bswap64(value);
  }
  if (!layout.is_signed) return Taken::kYes;
  const auto negative = std::find_if(values.begin(), values.end(), [](std::uint64_t value) {
    return static_cast<std::int64_t>(value) < 0;
  });
  if (negative == values.end()) return Taken::kYes;
  list.fault = fmt::format("[{}]: {} {}", negative - values.begin(),
                           static_cast<std::int64_t>(*negative), kRange);
  return Taken::kNo;
}

// The size is the item's own: ctypes writes '<l' for a long of this machine.
bool is_word(const Py_buffer& view, Layout& layout) {
  if (view.format == nullptr || view.itemsize != sizeof(std::uint64_t)) return false;
  std::string_view format = view.format;
  layout.swapped = format.starts_with('>') || format.starts_with('!');
  if (format.find_first_of("@=<>!") == 0) format.remove_prefix(1);
  if (format.size() != 1) return false;
  layout.is_signed = format == "q" || format == "l" || format == "n";
  return layout.is_signed || format == "Q" || format == "L" || format == "N";
}

Taken read_buffer(PyObject* source, IntegerList& list) {
  Py_buffer view;
  if (PyObject_GetBuffer(source, &view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return refuse_array(source, nullptr, list);
  }
  const std::unique_ptr<Py_buffer, decltype(&PyBuffer_Release)> owner(&view, PyBuffer_Release);
  Layout layout;
  if (view.ndim != 1 || !is_word(view, layout)) return refuse_array(source, &view, list);
  if (view.strides != nullptr) layout.stride = view.strides[0];  // ctypes gives none
  return read_words(view.buf, static_cast<std::size_t>(view.shape[0]), layout, list);
}

template <typename Number>
Taken read_dlpack(nb::handle source, IntegerList& list) {
  using Array = nb::ndarray<const Number, nb::ndim<1>, nb::device::cpu>;
  Array array;
  if (!nb::try_cast<Array>(source, array, false)) return Taken::kOther;
  Layout layout;
  layout.stride = array.stride(0) * static_cast<std::ptrdiff_t>(sizeof(Number));
  layout.is_signed = std::is_signed_v<Number>;
  return read_words(array.data(), array.shape(0), layout, list);
}

Taken read_array(nb::handle source, IntegerList& list) {
  if (PyObject_CheckBuffer(source.ptr()) != 0) return read_buffer(source.ptr(), list);
  if (PyObject_HasAttrString(source.ptr(), "__dlpack__") == 0) return Taken::kOther;
  Taken taken = read_dlpack<std::int64_t>(source, list);
  if (taken == Taken::kOther) taken = read_dlpack<std::uint64_t>(source, list);
  PyErr_Clear();
  return taken == Taken::kOther ? refuse_array(source.ptr(), nullptr, list) : taken;
}

// Adds to what is in the list already.
void read(nb::handle source, IntegerList& list) {
  PyObject* const object = source.ptr();
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) {
    if (read_array(source, list) != Taken::kOther) return;
    if (PyUnicode_Check(object) || PySequence_Check(object) == 0) {
      list.fault = fmt::format(": {}{}", kAllowed, Py_TYPE(object)->tp_name);
      return;
    }
  }
  read_sequence(object, list);
}

void read_rows(PyObject* source, IntegerTable& table) {
  PyObject* const rows = PyUnicode_Check(source) || PyBytes_Check(source)
                             ? nullptr
                             : PySequence_Tuple(source);  // ours: reading may change the caller's
  if (rows == nullptr) {
    table.flat.fault =
        fmt::format(": a sequence of lists of ints is needed, not {}", Py_TYPE(source)->tp_name);
    return;
  }
  const nb::object owner = nb::steal(rows);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); ++i) {
    read(PyTuple_GET_ITEM(rows, i), table.flat);
    if (!table.flat.fault.empty()) {
      table.flat.fault = fmt::format("[{}]{}", i, table.flat.fault);
      return;
    }
    table.ends.push_back(table.flat.values.size());
  }
}

}  // namespace

void read_argument(nb::handle source, IntegerList& list) noexcept {
  try {
    read(source, list);
  } catch (const std::bad_alloc&) {
    list.no_memory = true;
  }
  PyErr_Clear();
}

void read_argument(nb::handle source, IntegerTable& table) noexcept {
  try {
    read_rows(source.ptr(), table);
  } catch (const std::bad_alloc&) {
    table.flat.no_memory = true;
  }
  PyErr_Clear();
}

void check_list(const IntegerList& list, const char* argument) {
  if (list.no_memory) throw std::bad_alloc();
  if (!list.fault.empty()) throw nb::type_error((argument + list.fault).c_str());
}

}  // namespace mooncake::python
