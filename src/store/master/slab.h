// Slab: an array that grows by whole chunks and never moves what it holds, with numbers instead of
// pointers and a list of the numbers that are free.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "store/master/huge_pages.h"

namespace mooncake::store::master {

// No element, in every list of numbers here.
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

// T is trivial to copy; `kChunk` is a power of two. One that has grown to the size of a huge page
// goes on in huge pages, where the kernel has them.
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
      if (size_ % kChunk == 0) add_chunk();
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
  // Without what is left of the last huge page.
  std::size_t memory_bytes() const {
    return chunks_.size() * (sizeof(Chunk) + sizeof(void*)) + free_.capacity() * sizeof(free_[0]);
  }

 private:
  struct alignas(64) Chunk {
    T items[kChunk];
  };
  static constexpr std::size_t kPerBlock = kHugePage / sizeof(Chunk);
  static_assert(kPerBlock > 0 && std::is_trivially_destructible_v<T>);
  struct Free {
    std::align_val_t alignment{};
    void operator()(void* block) const { ::operator delete(block, alignment); }
  };
  using Block = std::unique_ptr<void, Free>;

  static Block allocate(std::size_t bytes, std::align_val_t alignment) {
    return Block(::operator new(bytes, alignment), Free{alignment});
  }
  void add_chunk() {
    const std::size_t in_block = chunks_.size() < kPerBlock ? 0 : chunks_.size() % kPerBlock;
    if (chunks_.size() < kPerBlock) {
      blocks_.push_back(allocate(sizeof(Chunk), std::align_val_t{alignof(Chunk)}));
    } else if (in_block == 0) {
      blocks_.push_back(allocate(kHugePage, std::align_val_t{kHugePage}));
      prefer_huge_pages(blocks_.back().get(), kHugePage);
    }
    auto* const place = static_cast<std::byte*>(blocks_.back().get()) + in_block * sizeof(Chunk);
    chunks_.push_back(new (place) Chunk());
  }

  std::vector<Block> blocks_;
  std::vector<Chunk*> chunks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t size_ = 0;
};

}  // namespace mooncake::store::master
