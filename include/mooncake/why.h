// Why: what became of a key, as far as the Master remembers.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mooncake {

// What happened to a key. The numbers are part of the protocol: they are never reused.
enum class KeyEventKind : std::uint8_t {
  kUnknown = 0,  // something that only a younger Master knows
  kPublished = 1,
  kEvictedForRoom = 2,       // another object needed its room
  kEvictedAhead = 3,         // the pool was above its high watermark
  kRemoved = 4,              // by its key
  kRemovedByPattern = 5,     // its key matched
  kRemovedWithAll = 6,       // everything was removed
  kReplaced = 7,             // by an upsert, whose kPublished follows
  kWriteTimedOut = 8,        // not finished in time
  kWriteAbandoned = 9,       // its writer has gone on without finishing it
  kWriterLeft = 10,          // closed, or fell silent
  kWriteRevoked = 11,        // by its writer, whose data did not arrive
  kWriteOvertaken = 12,      // another write of the key was published first
  kSegmentUnmounted = 13,    // lost with the segment, which its owner took back
  kSegmentMountedAnew = 14,  // lost: its owner mounted the segment again, empty
  kOwnerLeft = 15,           // lost: the owner of the segment closed
  kOwnerSilent = 16,         // lost: the owner of the segment was not heard of for client_ttl
  kOwnerReplaced = 17,       // lost: another engine answers under the owner's name
  kOwnerDistrusted = 18,     // lost: the owner claimed to hold what was never granted
};
inline constexpr std::uint8_t kLastKeyEventKind = 18;

struct KeyEvent {
  KeyEventKind kind = KeyEventKind::kUnknown;
  bool soft_pinned = false;  // the object, at the time
  std::uint64_t version = 0;
  std::uint64_t size = 0;           // bytes
  std::chrono::milliseconds ago{};  // before the answer
  std::string segment;              // where it lay; empty when nobody knows any more
  std::string writer;               // who wrote it; likewise
};

enum class KeyState : std::uint8_t { kAbsent = 0, kWriting = 1, kPublished = 2 };

// Why a reader of the key does not get it.
enum class MissReason : std::uint8_t {
  kNone = 0,      // it is there
  kNeverStored,   // nothing of the key since the Master's start, all of which it remembers
  kForgotten,     // never stored, or that is longer ago than the Master remembers
  kBeingWritten,  // for the first time, and not published yet
  kNotPublished,  // written, but the write ended without being published
  kEvicted,
  kRemoved,
  kLost,               // with the segment it lay in
  kMasterUnreachable,  // nobody could be asked
  kUnexplained,        // the miss is certain; its reason could not be asked for
};

// What the Master says of one key.
struct KeyReport {
  KeyState state = KeyState::kAbsent;
  MissReason reason = MissReason::kNone;
  std::string summary;  // one sentence

  // kPublished.
  std::uint64_t version = 0;
  std::uint64_t size = 0;             // bytes
  std::vector<std::string> segments;  // one for each replica
  bool soft_pinned = false;
  bool hard_pinned = false;
  std::chrono::milliseconds lease_left{};

  // Writes under way; of the oldest its writer and its age.
  std::uint32_t open_writes = 0;
  std::string writer;
  std::chrono::milliseconds writing_for{};

  std::vector<KeyEvent> events;  // newest first
  bool more_events = false;      // older ones of this key are left out

  // Of the Master that answered: events of all keys that it remembers, how far back they reach, and
  // whether there were others before.
  std::uint64_t remembered_events = 0;
  std::chrono::milliseconds remembered_for{};
  bool has_forgotten = false;
  std::chrono::milliseconds master_uptime{};
  std::int64_t master_time = 0;  // seconds since 1970
};

// As in JSON and in Python: "evicted_for_room", "absent", "never_stored". "none" is kNone's.
std::string_view to_string(KeyEventKind kind);
std::string_view to_string(KeyState state);
std::string_view to_string(MissReason reason);

}  // namespace mooncake
