// BufferCursor: walks over scattered memory, one contiguous piece after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffers.h"

namespace mooncake::transfer {

class BufferCursor {
 public:
  explicit BufferCursor(std::span<const base::MutableBuffer> buffers) : buffers_(buffers) {}

  // The next bytes, at least one and at most `limit` (> 0); empty at the end.
  base::MutableBuffer peek(std::size_t limit) {
    while (!buffers_.empty() && offset_ == buffers_.front().size()) {
      buffers_ = buffers_.subspan(1);
      offset_ = 0;
    }
    if (buffers_.empty()) return {};
    const auto rest = buffers_.front().subspan(offset_);
    return rest.first(std::min(rest.size(), limit));
  }
  // At most what peek() showed.
  void advance(std::size_t size) { offset_ += size; }

 private:
  std::span<const base::MutableBuffer> buffers_;
  std::size_t offset_ = 0;
};

// Bytes [offset, offset + length) of scattered memory.
inline std::vector<base::MutableBuffer> sub_buffers(std::span<const base::MutableBuffer> buffers,
                                                    std::uint64_t offset, std::uint64_t length) {
  std::vector<base::MutableBuffer> result;
  for (base::MutableBuffer buffer : buffers) {
    const auto skipped = std::min<std::uint64_t>(offset, buffer.size());
    offset -= skipped;
    buffer = buffer.subspan(skipped);
    buffer = buffer.first(std::min<std::uint64_t>(length, buffer.size()));
    if (!buffer.empty()) result.push_back(buffer);
    length -= buffer.size();
    if (length == 0) break;
  }
  return result;
}

}  // namespace mooncake::transfer
