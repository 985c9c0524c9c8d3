// What Python callers may pass, beyond what nanobind takes by itself.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "mooncake/store.h"

namespace mooncake::python {

namespace nb = nanobind;

// A key: str (as UTF-8) or bytes. Points into the argument, which outlives the call.
struct Key {
  std::string_view text;
};

// Anything with __index__, in decimal; the settings table judges its range.
struct Integer {
  std::string digits;
};

// bool, numpy.bool_ and integers; text is refused, since "false" would be true.
struct Truth {
  bool value = false;
};

// Any object with the buffer protocol.
struct Buffer {
  nb::handle object;
};

// Holds a buffer's memory in place, without a copy, from construction to destruction, both under
// the GIL. Raises BufferError for one whose bytes don't lie one after the other.
class BufferView {
 public:
  explicit BufferView(Buffer buffer);
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  ConstBytes bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }
  // Whether it has one dimension, of single bytes.
  bool is_plain() const { return view_.ndim == 1 && view_.itemsize == 1; }

 private:
  Py_buffer view_;
};

bool read_argument(nb::handle source, Key& key) noexcept;
bool read_argument(nb::handle source, Integer& integer) noexcept;
bool read_argument(nb::handle source, Truth& truth) noexcept;
bool read_argument(nb::handle source, Buffer& buffer) noexcept;

}  // namespace mooncake::python

namespace nanobind::detail {

#define MC_ARGUMENT_CASTER(type, name)                                                        \
  template <>                                                                                 \
  struct type_caster<mooncake::python::type> {                                                \
    NB_TYPE_CASTER(mooncake::python::type, const_name(name))                                  \
    bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {                  \
      return mooncake::python::read_argument(source, value);                                  \
    }                                                                                         \
    static handle from_cpp(const mooncake::python::type&, rv_policy, cleanup_list*) = delete; \
  };
MC_ARGUMENT_CASTER(Key, "str | bytes")
MC_ARGUMENT_CASTER(Integer, "int")
MC_ARGUMENT_CASTER(Truth, "bool")
MC_ARGUMENT_CASTER(Buffer, "Buffer")
#undef MC_ARGUMENT_CASTER

}  // namespace nanobind::detail
