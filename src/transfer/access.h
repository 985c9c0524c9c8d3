// WriteAccess, ReadAccess: one range of this process's memory that a request names, checked the
// same way whichever transport brings it: registration and key, permission, extent, grant or
// generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "memory/extent_table.h"
#include "memory/registry.h"
#include "mooncake/result.h"

namespace mooncake::transfer {

struct RemoteRange {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  memory::RegionKey key{};
  std::uint64_t guard = 0;  // 0 = plain memory
  std::uint64_t extent = 0;
};

// Whether this code says that a peer asked for what it may not touch, and not only for what has
// changed.
constexpr bool is_refusal(Code code) {
  return code == Code::kAddressNotRegistered || code == Code::kRegionKeyMismatch ||
         code == Code::kInvalidArgument;
}

// Executor thread only. Destroyed before finish(): the bytes are not there and never will be.
class WriteAccess {
 public:
  // Never fails: code() tells. `record` and `key` belong to guarded ranges.
  // `copier`: who places the bytes of a guarded range, when it isn't this process.
  WriteAccess(const memory::Registry& registry, const RemoteRange& range,
              const memory::ExtentRecord* record, std::string_view key,
              std::shared_ptr<memory::Copier> copier = nullptr);
  WriteAccess(WriteAccess&&) noexcept = default;
  WriteAccess& operator=(WriteAccess&&) = delete;
  ~WriteAccess();

  Code code() const { return code_; }
  std::uint64_t length() const { return range_.length; }
  // Ask before each copy: when false, the bytes go elsewhere.
  bool may_write() const;
  std::byte* data() const { return reinterpret_cast<std::byte*>(range_.address); }
  // The memory turned out not to be writable: what has been written stays, the rest goes elsewhere.
  void lose() {
    if (code_ == Code::kOk) code_ = Code::kAddressNotRegistered;
  }
  // These very bytes are there: none need to be placed.
  bool present() const { return present_; }
  // All bytes have been placed, or sent elsewhere as may_write() said. kGenerationMismatch when
  // plain memory was taken back in the middle.
  Code finish();

 private:
  Code admit(const memory::Registry& registry, const memory::ExtentRecord* record,
             std::string_view key, std::shared_ptr<memory::Copier> copier);

  RemoteRange range_;
  Code code_ = Code::kOk;
  bool present_ = false;
  memory::Access access_;
  memory::ExtentTable::Ticket ticket_;
  std::shared_ptr<memory::ExtentTable> extents_;  // null for plain memory, or when not admitted
};

// Executor thread only.
class ReadAccess {
 public:
  ReadAccess(const memory::Registry& registry, const RemoteRange& range);

  Code code() const { return code_; }
  std::uint64_t length() const { return range_.length; }
  // Ask before each copy: when false, zeros take the place of the bytes.
  bool may_read() const;
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(range_.address); }
  // The memory turned out not to be readable.
  void lose() {
    if (code_ == Code::kOk) code_ = Code::kAddressNotRegistered;
  }
  // Instead of a copy: guarded bytes stay as they are until the pin ends.
  Result<memory::PinnedRanges::Pin> pin();
  // After the last byte has been copied: whether all of them were what was asked for.
  Code finish();

 private:
  Code state() const;

  RemoteRange range_;
  Code code_ = Code::kOk;
  memory::Access access_;
};

}  // namespace mooncake::transfer
