#include "transfer_engine_bench/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace mooncake::bench {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t word_at(std::uint64_t offset, Side side) {
  return side == Side::kTarget ? offset : ~offset;
}

}  // namespace

void fill(std::span<std::byte> bytes, Side side) {
  for (std::size_t at = 0; at < bytes.size(); at += kWord) {
    const std::uint64_t word = word_at(at, side);
    std::memcpy(bytes.data() + at, &word, std::min(kWord, bytes.size() - at));
  }
}

std::optional<std::uint64_t> first_wrong(std::span<const std::byte> bytes, Side side) {
  for (std::size_t at = 0; at < bytes.size(); at += kWord) {
    const std::uint64_t word = word_at(at, side);
    const auto expected =
        std::as_bytes(std::span(&word, 1)).first(std::min(kWord, bytes.size() - at));
    const auto differs = std::mismatch(expected.begin(), expected.end(), bytes.data() + at);
    if (differs.first != expected.end()) {
      return at + static_cast<std::uint64_t>(differs.first - expected.begin());
    }
  }
  return std::nullopt;
}

Result<Memory> Memory::create(TransferEngine& engine, std::uint64_t size, bool pool) {
  if (pool) {
    auto data = engine.allocate_memory(size);
    if (!data) return fail(std::move(data).error().with_context("buffer_size"));
    return Memory(engine, static_cast<std::byte*>(*data), size, true);
  }
  void* const data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return fail(Code::kOutOfMemory,
                fmt::format("buffer_size: {} bytes: {}", size, std::strerror(errno)));
  }
  Memory memory(engine, static_cast<std::byte*>(data), size, false);
  MC_CHECK(engine.register_memory(data, size));
  return memory;
}

Memory::Memory(Memory&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      data_(other.data_),
      size_(other.size_),
      pool_(other.pool_) {}

// Memory that a peer still touches stays where it is; the process ends soon.
Memory::~Memory() {
  if (!engine_) return;
  if (pool_) {
    static_cast<void>(engine_->free_memory(data_));
  } else if (engine_->unregister_memory(data_)) {
    ::munmap(data_, size_);
  }
}

}  // namespace mooncake::bench
