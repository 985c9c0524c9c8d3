#include "transfer/transports/tcp/scatter.h"

#include <cassert>

namespace mooncake::transfer::tcp {

namespace {

constexpr std::size_t kScratch = 64u << 10;
constexpr std::array<std::byte, kScratch> kZeros{};

}  // namespace

std::span<std::byte> WriteSink::prepare(std::size_t remaining) {
  while (!accesses_.empty() && offset_ == accesses_.front().length()) {
    accesses_ = accesses_.subspan(1);
    offset_ = 0;
  }
  assert(!accesses_.empty() && "more bytes than the ranges have");
  const WriteAccess& access = accesses_.front();
  const std::size_t size = std::min<std::size_t>(remaining, access.length() - offset_);
  if (!attempt_.fenced() && access.may_write()) return {access.data() + offset_, size};
  scratch_.resize(std::min(std::max(size, scratch_.size()), kScratch));
  return std::span(scratch_).first(std::min(size, scratch_.size()));
}

base::ConstBuffer ReadSource::next(std::size_t remaining) {
  while (!accesses_.empty() && offset_ == accesses_.front().length()) {
    accesses_ = accesses_.subspan(1);
    offset_ = 0;
  }
  assert(!accesses_.empty() && "more bytes than the ranges have");
  const ReadAccess& access = accesses_.front();
  std::size_t size = std::min<std::size_t>(remaining, access.length() - offset_);
  if (access.may_read()) {
    piece_of_ = &access;
    const base::ConstBuffer piece(access.data() + offset_, size);
    offset_ += size;
    return piece;
  }
  piece_of_ = nullptr;
  size = std::min(size, kZeros.size());
  offset_ += size;
  return base::ConstBuffer(kZeros).first(size);
}

}  // namespace mooncake::transfer::tcp
