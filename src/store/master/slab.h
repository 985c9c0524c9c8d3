// Slab: an array that grows by whole chunks and never moves what it holds, with numbers instead of
// pointers and a list of the numbers that are free.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace mooncake::store::master {

// No element, in every list of numbers here.
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

// T is trivial to copy; `kChunk` is a power of two.
template <typename T, std::uint32_t kChunk>
class Slab {
 public:
  T& operator[](std::uint32_t index) { return chunks_[index / kChunk]->items[index % kChunk]; }
  const T& operator[](std::uint32_t index) const {
    return chunks_[index / kChunk]->items[index % kChunk];
  }

  // A fresh T{}; kNone when all numbers are in use.
  std::uint32_t take() {
    if (free_.empty()) {
      if (size_ == kNone) return kNone;
      if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<Chunk>());
      return size_++;
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void give_back(std::uint32_t index) {
    (*this)[index] = T{};
    free_.push_back(index);
  }

  // Numbers ever handed out: 0 .. size() - 1.
  std::uint32_t size() const { return size_; }
  std::uint32_t in_use() const { return size_ - static_cast<std::uint32_t>(free_.size()); }
  std::size_t memory_bytes() const {
    return chunks_.size() * (sizeof(Chunk) + sizeof(void*)) + free_.capacity() * sizeof(free_[0]);
  }

 private:
  struct alignas(64) Chunk {
    T items[kChunk];
  };
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t size_ = 0;
};

}  // namespace mooncake::store::master
