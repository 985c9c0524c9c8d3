// Lists of addresses and lengths, as Python callers pass them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mooncake::python {

// From a one-dimensional array of int64 or uint64 in any byte order (buffer protocol or DLPack),
// without an object for each item; or from any sequence of ints but text. Nothing may be negative
// or above 64 bits, a bool is no int, and no other array is taken: narrower ones have lost bits
// before we see them.
struct IntegerList {
  std::vector<std::uint64_t> values;
  std::string fault = {};  // what check_list() raises, without the argument's name; most often none
  bool no_memory = false;
};

// Several such lists, one after the other.
struct IntegerTable {
  IntegerList flat;               // fault of the first row that has one
  std::vector<std::size_t> ends;  // of the rows, in flat.values
};

// Either of them as rows; those of a list have one number each. Points into it.
class NumberRows {
 public:
  explicit NumberRows(const IntegerList& list) : list_(list) {}
  explicit NumberRows(const IntegerTable& table) : list_(table.flat), ends_(&table.ends) {}

  const IntegerList& list() const { return list_; }
  bool is_table() const { return ends_ != nullptr; }
  std::size_t size() const { return is_table() ? ends_->size() : list_.values.size(); }
  std::span<const std::uint64_t> operator[](std::size_t index) const {
    if (!is_table()) return std::span(list_.values).subspan(index, 1);
    const std::size_t begin = index == 0 ? 0 : (*ends_)[index - 1];
    return std::span(list_.values).subspan(begin, (*ends_)[index] - begin);
  }

 private:
  const IntegerList& list_;
  const std::vector<std::size_t>* ends_ = nullptr;
};

// Never says no, so that the call can name the argument.
void read_argument(nanobind::handle source, IntegerList& list) noexcept;
void read_argument(nanobind::handle source, IntegerTable& table) noexcept;
// First of all in a call. Raises TypeError that names the argument, what was given and what is
// allowed; throws bad_alloc where memory ran out.
void check_list(const IntegerList& list, const char* argument);

// An address, a length or a number of a batch: an int, but no bool.
struct Word {
  std::uint64_t value = 0;
  operator std::uint64_t() const { return value; }
};

}  // namespace mooncake::python

namespace nanobind::detail {

template <>
struct type_caster<mooncake::python::IntegerList> {
  NB_TYPE_CASTER(mooncake::python::IntegerList, const_name("list[int]"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    mooncake::python::read_argument(source, value);
    return true;
  }
  static handle from_cpp(const mooncake::python::IntegerList&, rv_policy, cleanup_list*) = delete;
};

template <>
struct type_caster<mooncake::python::IntegerTable> {
  NB_TYPE_CASTER(mooncake::python::IntegerTable, const_name("list[list[int]]"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    mooncake::python::read_argument(source, value);
    return true;
  }
  static handle from_cpp(const mooncake::python::IntegerTable&, rv_policy, cleanup_list*) = delete;
};

template <>
struct type_caster<mooncake::python::Word> {
  NB_TYPE_CASTER(mooncake::python::Word, const_name("int"))
  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::uint64_t> caster;
    if (PyBool_Check(source.ptr()) || !caster.from_python(source, flags, cleanup)) return false;
    value.value = caster.value;
    return true;
  }
  static handle from_cpp(const mooncake::python::Word&, rv_policy, cleanup_list*) = delete;
};

}  // namespace nanobind::detail
