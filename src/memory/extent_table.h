// ExtentTable: what a segment's owner knows of each extent in it: which version lies there, whether
// it is being written, and the record that came with the bytes. The owner decides at the moment of
// use whether an access is still meant (design 4.1). docs/formats.md, "Extents".
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "memory/pinned_ranges.h"
#include "mooncake/result.h"
#include "os/shared_mapping.h"

namespace mooncake::memory {

using base::Generation;
using base::Version;

// Extents begin on units of this size; each unit has one generation word.
inline constexpr std::uint64_t kExtentUnit = 4096;

// Describes an object well enough to rebuild the directory from the owners alone. Travels with the
// bytes, in the same message. The key's text follows it on the wire.
struct ExtentRecord {
  std::uint64_t version = 0;   // base::Version
  std::uint64_t size = 0;      // of the object
  std::uint64_t checksum = 0;  // xxh3-64 of its bytes; only with kHasChecksum
  std::uint64_t group = 0;     // hash of the group's name; 0 = none
  std::uint16_t tenant = 0;    // 0 = default
  std::uint16_t key_length = 0;
  std::uint8_t kind = 0;      // RecordKind
  std::uint8_t flags = 0;     // RecordFlags
  std::uint8_t replicas = 1;  // that the grant gave
  std::uint8_t reserved = 0;
};
static_assert(sizeof(ExtentRecord) == 40);
enum RecordKind : std::uint8_t { kPut = 1, kUpsert = 2 };
enum RecordFlags : std::uint8_t { kHasChecksum = 1 };
inline constexpr std::size_t kMaxKeyLength = 4096;

// Who places the bytes of a write by itself, from another process.
class Copier {
 public:
  virtual ~Copier() = default;
  // From here on it begins no further copy.
  virtual void stop() = 0;
  // After stop(): whether its last copy has ended, so that nothing of it lands any more.
  virtual bool is_out() const = 0;
};

// Executor thread only. A unit's word never falls to an older version: it is raised by each write
// that takes the unit, so that what was granted earlier is refused for ever, also when it arrives
// last.
class ExtentTable {
 public:
  // For a segment of `size` bytes. The words live in shared memory beside the segment, which peers
  // may map and only read. `pins` are those of the memory, also of earlier tables; null: none.
  static Result<std::unique_ptr<ExtentTable>> create(std::uint64_t size,
                                                     std::shared_ptr<PinnedRanges> pins = nullptr);
  ~ExtentTable();

  // A write under way: one message's part of an extent. Fenced when a younger write takes any of
  // the extent's bytes, when another ticket of the same version has committed any byte of its part,
  // or by fence_all(). Its copier, if it has one, is stopped when the ticket ends in whatever way;
  // until it is out, kBusy keeps others from the bytes that it may still write.
  class Ticket {
   public:
    Ticket() = default;
    explicit operator bool() const { return id_ != 0; }

   private:
    friend class ExtentTable;
    std::uint64_t id_ = 0;
  };
  enum class Begin : std::uint8_t {
    kStarted,          // the first part of this version: what lay there before is gone
    kJoined,           // another part (or another try) of a version that is being written
    kAlreadyComplete,  // this part of this very version is there: no ticket, send the bytes to a
                       // sink, it is a success
  };
  struct BeginOutcome {
    Begin kind = Begin::kStarted;
    Ticket ticket;
  };

  // Opens a write of [offset, offset + length) inside the extent [extent, extent + record.size),
  // under the grant record.version. kGrantRefused when an overlapped extent is younger, or of the
  // same version but another record, or when the version is not above the floor. kInvalidArgument
  // when the record is none, when the extent doesn't begin on a unit or leaves the segment, or the
  // part is empty or leaves the extent. kBusy while a copier that was stopped may still write
  // there: what was promised of these bytes is void all the same. kBusy also when another version
  // is pinned there: then nothing has changed. kBusy also when too many writes of the extent are
  // open.
  Result<BeginOutcome> begin_write(std::uint64_t extent, std::uint64_t offset, std::uint64_t length,
                                   const ExtentRecord& record, std::string_view key,
                                   std::shared_ptr<Copier> copier = nullptr);
  // Ask before each byte is placed: false sends the rest to a sink.
  bool may_write(const Ticket& ticket) const;
  // The part's bytes are there. When all of the extent's are, it becomes readable. kGrantRefused
  // when the ticket was fenced in the meantime (unless others have written the part: that is
  // success), or its copier is still inside. kBusy when the copier of another try of the extent's
  // last bytes is still inside; once it is out, to begin the part again completes the extent.
  Result<void> commit(Ticket ticket);
  // The part's bytes are not all there, and never will be by this ticket.
  void abandon(Ticket ticket);

  // Ask before and after a copy of [offset, offset + length) out of the extent that begins at
  // `extent`: true when it is complete, of this generation, and has those bytes.
  bool readable(std::uint64_t extent, std::uint64_t offset, std::uint64_t length,
                Generation promised) const;

  // Until the pin ends, the extent's bytes stay as they are, whatever becomes of this table:
  // younger writes of them are refused. kGenerationMismatch when the extent is not complete and of
  // this generation.
  Result<PinnedRanges::Pin> pin(std::uint64_t extent, Generation promised);

  struct Extent {
    Generation generation{};
    ExtentRecord record;
    std::string key;
  };
  const Extent* find(std::uint64_t offset) const;
  std::size_t extents() const;
  std::size_t writes_under_way() const;

  // Nothing lands any more under any ticket, nothing is readable, and versions up to `floor` are
  // refused from here on. Pins stay. For unmount.
  void fence_all(Version floor);
  // The youngest version ever seen here.
  Version newest() const { return newest_; }

  std::span<const std::atomic<std::uint64_t>> words() const;
  const os::OwnedMapping& words_memory() const;

 private:
  struct State;
  struct Live;
  ExtentTable();
  Result<void> check(std::uint64_t extent, std::uint64_t offset, std::uint64_t length,
                     const ExtentRecord& record, std::string_view key) const;
  Live* joinable(std::uint64_t extent, const ExtentRecord& record, std::string_view key);
  Live& take_over(std::uint64_t extent, const ExtentRecord& record, std::string_view key);

  std::unique_ptr<State> state_;
  Version newest_;
};

}  // namespace mooncake::memory
