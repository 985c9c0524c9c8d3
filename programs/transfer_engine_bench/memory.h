// Registered memory whose bytes follow from their place and their side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mooncake/transfer.h"

namespace mooncake::bench {

enum class Side : std::uint8_t { kTarget, kInitiator };

// Little-endian words of 8 bytes: at a target their offset, at an initiator its complement.
void fill(std::span<std::byte> bytes, Side side);
// Offset of the first byte that differs from what fill() would have put there.
std::optional<std::uint64_t> first_wrong(std::span<const std::byte> bytes, Side side);

// Belongs to the engine, which must outlive it.
class Memory {
 public:
  // From a pool, which processes of this host map; or private, as any memory of a user is.
  static Result<Memory> create(TransferEngine& engine, std::uint64_t size, bool pool);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  Memory(TransferEngine& engine, std::byte* data, std::uint64_t size, bool pool)
      : engine_(&engine), data_(data), size_(size), pool_(pool) {}

  TransferEngine* engine_;
  std::byte* data_;
  std::uint64_t size_;
  bool pool_;
};

}  // namespace mooncake::bench
