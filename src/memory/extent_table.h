// ExtentTable: what a segment's owner knows of each extent in it: which version lies there, whether it
// is being written, and the record that came with the bytes. The owner decides at the moment of use
// whether an access is still meant (design 4.1). docs/formats.md, "Extents".
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ids.h"
#include "mooncake/result.h"

namespace mooncake::memory {

using base::Generation;
using base::Version;

// Extents begin on units of this size; each unit has one generation word.
inline constexpr std::uint64_t kExtentUnit = 4096;

// Describes an object well enough to rebuild the directory from the owners alone. Travels with the
// bytes, in the same message. The key's text follows it on the wire.
struct ExtentRecord {
  std::uint64_t version = 0;   // base::Version
  std::uint64_t size = 0;      // of the object's bytes in this extent
  std::uint64_t checksum = 0;  // xxh3-64 of them; only with kHasChecksum
  std::uint32_t tenant = 0;    // 0 = default
  std::uint16_t key_length = 0;
  std::uint8_t kind = 0;       // RecordKind
  std::uint8_t flags = 0;      // RecordFlags
};
static_assert(sizeof(ExtentRecord) == 32);
enum RecordKind : std::uint8_t { kPut = 1, kUpsert = 2 };
enum RecordFlags : std::uint8_t { kHasChecksum = 1 };
inline constexpr std::size_t kMaxKeyLength = 4096;

// Executor thread of the owner only; the words may be read by anyone who maps them.
class ExtentTable {
 public:
  // For a segment of `size` bytes. The words live in shared memory beside the segment.
  static Result<std::unique_ptr<ExtentTable>> create(std::uint64_t size);
  ~ExtentTable();

  // A write under way. Fenced when a younger write takes any of its bytes, or by fence_all().
  class Ticket {
   public:
    Ticket() = default;
    explicit operator bool() const { return id_ != 0; }

   private:
    friend class ExtentTable;
    std::uint64_t id_ = 0;
  };

  // Opens a write under a grant: the extents it overlaps are gone from here on, and writes still under
  // way there are fenced. kGrantRefused when an overlapped extent is of the same or a younger version
  // (unless it is this very grant and complete or fenced: a repeated write is refused too, since the
  // first may have been published). `offset` is a multiple of kExtentUnit; offset + length <= size.
  Result<Ticket> begin_write(std::uint64_t offset, std::uint64_t length, const ExtentRecord& record,
                             std::string_view key);
  // Ask before each byte is placed: false sends the rest to a sink.
  bool may_write(const Ticket& ticket) const;
  // The bytes are there. kGrantRefused when the ticket was fenced in the meantime.
  Result<void> commit(Ticket ticket);
  // The bytes are not all there, and never will be. The extent stays unreadable.
  void abandon(Ticket ticket);

  // Ask before and after a copy: true when `offset` starts a complete extent of this generation that
  // has at least `length` bytes.
  bool readable(std::uint64_t offset, std::uint64_t length, Generation promised) const;

  struct Extent {
    std::uint64_t length = 0;  // of the granted range
    Generation generation{};
    ExtentRecord record;
    std::string key;
  };
  const Extent* find(std::uint64_t offset) const;
  std::size_t extents() const { return extents_.size(); }
  std::size_t writes_under_way() const { return writes_.size(); }

  // Nothing lands any more under any ticket, nothing is readable. For unmount.
  void fence_all();

  std::span<const std::atomic<std::uint64_t>> words() const;

 private:
  struct Write {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    bool fenced = false;
  };
  ExtentTable() = default;
  void set_word(std::uint64_t offset, Generation generation);
  void drop_overlapped(std::uint64_t offset, std::uint64_t length);

  std::uint64_t size_ = 0;
  std::uint64_t words_bytes_ = 0;
  std::atomic<std::uint64_t>* words_ = nullptr;
  std::map<std::uint64_t, Extent> extents_;          // by offset, disjoint
  std::map<std::uint64_t, Write> writes_;            // by ticket id
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mooncake::memory
