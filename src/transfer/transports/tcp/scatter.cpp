#include "transfer/transports/tcp/scatter.h"

#include <cassert>
#include <utility>

namespace mooncake::transfer::tcp {

namespace {

constexpr std::size_t kScratch = 64u << 10;
constexpr std::array<std::byte, kScratch> kZeros{};

}  // namespace

std::span<std::byte> WriteSink::scratch(std::size_t size) {
  scratch_.resize(std::min(std::max(size, scratch_.size()), kScratch));
  return std::span(scratch_).first(std::min(size, scratch_.size()));
}

std::span<std::byte> WriteSink::prepare(std::size_t remaining) {
  std::span<std::byte> place;
  prepare_all(remaining, {&place, 1});
  return place;
}

// A range that may not be written ends the row: there is one scratch block.
std::size_t WriteSink::prepare_all(std::size_t remaining, std::span<std::span<std::byte>> places) {
  std::size_t count = 0;
  std::size_t offset = offset_;
  for (const WriteAccess& access : accesses_) {
    if (remaining == 0 || count == places.size()) break;
    const std::size_t begin = std::exchange(offset, 0);
    const std::size_t size = std::min<std::size_t>(remaining, access.length() - begin);
    if (size == 0) continue;
    if (attempt_.fenced() || !access.may_write()) {
      if (count == 0) places[count++] = scratch(size);
      break;
    }
    places[count++] = {access.data() + begin, size};
    remaining -= size;
  }
  assert(count > 0 && "more bytes than the ranges have");
  return count;
}

void WriteSink::commit(std::size_t size) {
  offset_ += size;
  while (!accesses_.empty() && offset_ >= accesses_.front().length()) {
    offset_ -= accesses_.front().length();
    accesses_ = accesses_.subspan(1);
  }
}

// Empty ranges before it take no byte.
void WriteSink::lose() {
  while (accesses_.size() > 1 && offset_ == 0 && accesses_.front().length() == 0)
    accesses_ = accesses_.subspan(1);
  if (!accesses_.empty()) accesses_.front().lose();
}

base::ConstBuffer ReadSource::next(std::size_t remaining) {
  base::ConstBuffer piece;
  next_all(remaining, {&piece, 1});
  return piece;
}

// A range that may not be read any more stands alone, as zeros.
std::size_t ReadSource::next_all(std::size_t remaining, std::span<base::ConstBuffer> pieces) {
  std::size_t count = 0;
  given_ = {};
  while (remaining > 0 && count < pieces.size()) {
    while (!accesses_.empty() && offset_ == accesses_.front().length()) {
      accesses_ = accesses_.subspan(1);
      offset_ = 0;
    }
    if (accesses_.empty()) break;
    const ReadAccess& access = accesses_.front();
    if (!given_.empty() && &access > &given_.back() + 1) break;  // live() asks those with bytes
    std::size_t size = std::min<std::size_t>(remaining, access.length() - offset_);
    if (access.may_read()) {
      given_ = {given_.empty() ? &access : given_.data(), &access + 1};
      pieces[count++] = {access.data() + offset_, size};
    } else if (count == 0) {
      size = std::min(size, kZeros.size());
      pieces[count++] = base::ConstBuffer(kZeros).first(size);
      remaining = size;
    } else {
      break;
    }
    offset_ += size;
    remaining -= size;
  }
  assert(count > 0 && "more bytes than the ranges have");
  return count;
}

bool ReadSource::live() const {
  return std::all_of(given_.begin(), given_.end(),
                     [](const ReadAccess& access) { return access.may_read(); });
}

}  // namespace mooncake::transfer::tcp
