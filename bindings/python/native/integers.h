// Lists of addresses and lengths, as Python callers pass them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace mooncake::python {

// From a one-dimensional array of int64 or uint64 (buffer protocol or DLPack), without an object
// for each item; or from any sequence of ints but text. Nothing may be negative or above 64 bits.
struct IntegerList {
  std::vector<std::uint64_t> values;
};

bool read_argument(nanobind::handle source, IntegerList& list) noexcept;

}  // namespace mooncake::python

namespace nanobind::detail {

template <>
struct type_caster<mooncake::python::IntegerList> {
  NB_TYPE_CASTER(mooncake::python::IntegerList, const_name("list[int]"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    return mooncake::python::read_argument(source, value);
  }
  static handle from_cpp(const mooncake::python::IntegerList&, rv_policy, cleanup_list*) = delete;
};

}  // namespace nanobind::detail
