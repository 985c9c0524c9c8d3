// Memory that Python sees as objects: BufferHandle, PinnedBuffer, and the exporter behind the
// leases of a pool.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "mooncake/store.h"

namespace mooncake::python {

// The bytes of one object, read from the store. Freed with the Python object, and not before its
// views.
class BufferHandle {
 public:
  // Null where there is no memory.
  static std::unique_ptr<BufferHandle> make(std::size_t size);

  std::byte* data() { return data_.get(); }
  std::size_t size() const { return size_; }
  // Keeps the first `size` bytes.
  void shrink(std::size_t size) { size_ = size; }

 private:
  BufferHandle(std::unique_ptr<std::byte[]> data, std::size_t size)
      : data_(std::move(data)), size_(size) {}

  std::unique_ptr<std::byte[]> data_;
  std::size_t size_;
};

// The bytes of one object where they lie in the store, which nobody may write. Under the GIL.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(PinnedObject object) : object_(std::move(object)) {}
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  ConstBytes data() const { return object_.data(); }
  bool released() const { return released_; }
  // Gives no further view; the pin ends now or with the last view.
  void release();
  void begin_view() { ++views_; }
  void end_view();

 private:
  PinnedObject object_;
  std::size_t views_ = 0;
  bool released_ = false;
};

// A part of another object's writable buffer, which counts the views that are alive. Under the GIL.
class BufferLeaseView {
 public:
  // Raises BufferError for a buffer that can't be written, IndexError for a part outside.
  BufferLeaseView(nanobind::handle whole, std::size_t offset, std::size_t size);
  ~BufferLeaseView() { PyBuffer_Release(&whole_); }
  BufferLeaseView(const BufferLeaseView&) = delete;
  BufferLeaseView& operator=(const BufferLeaseView&) = delete;

  std::byte* data() { return data_; }
  std::size_t size() const { return size_; }
  std::size_t views() const { return views_; }
  void begin_view() { ++views_; }
  void end_view() { --views_; }

 private:
  Py_buffer whole_{};
  std::byte* data_ = nullptr;
  const std::size_t size_;
  std::size_t views_ = 0;
};

void add_memory_objects(nanobind::module_& module);

}  // namespace mooncake::python
