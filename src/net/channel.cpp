#include "net/channel.h"

#include <algorithm>
#include <cassert>

namespace mooncake::net {

base::ConstBuffer BufferSource::next(std::size_t remaining) {
  while (!buffers_.empty() && offset_ == buffers_.front().size()) {
    buffers_ = buffers_.subspan(1);
    offset_ = 0;
  }
  assert(!buffers_.empty() && "the message is longer than its buffers");
  const base::ConstBuffer rest = buffers_.front().subspan(offset_);
  const base::ConstBuffer piece = rest.first(std::min(rest.size(), remaining));
  offset_ += piece.size();
  return piece;
}

std::size_t BufferSource::next_all(std::size_t remaining, std::span<base::ConstBuffer> pieces) {
  std::size_t count = 0;
  while (remaining > 0 && count < pieces.size()) {
    pieces[count] = next(remaining);
    remaining -= pieces[count++].size();
  }
  return count;
}

std::span<std::byte> DiscardSink::prepare(std::size_t remaining) {
  return std::span<std::byte>(scratch_).first(std::min(scratch_.size(), remaining));
}

}  // namespace mooncake::net
