// Keys of a batch, as Python callers pass them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <vector>

namespace mooncake::python {

// From a sequence of str (as UTF-8) and bytes, or from a one-dimensional NumPy array of dtype 'S'
// (whose items lose the zeros at their ends, as NumPy has it). No text is copied: what the keys
// point into is held, whatever becomes of the caller's list. Made and destroyed under the GIL.
class KeyList {
 public:
  KeyList() = default;
  ~KeyList() { release(); }
  KeyList(const KeyList&) = delete;
  KeyList& operator=(const KeyList&) = delete;

  const std::vector<std::string_view>& keys() const { return keys_; }
  std::size_t size() const { return keys_.size(); }
  // As the caller gave it; bytes where they came as an array.
  nanobind::object object(std::size_t index) const;
  // Whether it came as an array: then so do the results.
  bool is_array() const { return view_.obj != nullptr; }

  // Replaces the contents; what is wrong is kept for check().
  void read(nanobind::handle source) noexcept;
  // First of all in a call. Raises TypeError that names the item and what is allowed; throws
  // bad_alloc where memory ran out.
  void check() const;

 private:
  void read_array();
  void read_sequence(PyObject* source);
  void release();

  std::vector<std::string_view> keys_;
  nanobind::object owner_;  // a tuple
  Py_buffer view_{};
  std::string fault_;
  bool no_memory_ = false;
};

}  // namespace mooncake::python

namespace nanobind::detail {

template <>
struct type_caster<mooncake::python::KeyList> {
  NB_TYPE_CASTER(mooncake::python::KeyList, const_name("list[str]"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    value.read(source);  // never says no, so that the call can name the argument
    return true;
  }
  static handle from_cpp(const mooncake::python::KeyList&, rv_policy, cleanup_list*) = delete;
};

}  // namespace nanobind::detail
