// Directory: from a key's text to its Entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/hash.h"
#include "store/master/entry.h"
#include "store/master/key_arena.h"
#include "store/master/slab.h"

namespace mooncake::store::master {

// Open addressing over groups of one cache line: twelve 8-bit tags, twelve entry numbers, and a
// count of keys that found the group full and went on, so that removal leaves no tombstones.
// Entries never move. Grows by a quarter, a few groups with each insertion, so that no command pays
// for all.
//
// For a batch: hash all, then prefetch_group() all, prefetch_entry() all, prefetch_text() all, then
// ask. One thread.
class Directory {
 public:
  explicit Directory(std::uint64_t seed);

  base::Hash128 hash(std::string_view key) const { return base::hash128(key, seed_); }

  void prefetch_group(const base::Hash128& hash) const;
  void prefetch_entry(const base::Hash128& hash, bool whole) const;  // or what a probe needs of it
  void prefetch_text(const base::Hash128& hash) const;
  // What erase() of the entry behind this one in its queue will need, and the entry behind that: of
  // a row that goes one by one, none is waited for.
  void prefetch_erase_behind(const Entry& entry) const;

  // The key's first entry; kNoEntry when there is none.
  std::uint32_t find(const base::Hash128& hash, std::string_view key) const;
  // A new entry with hash and key filled in; kNoEntry when a table is full. The key must not be
  // there.
  std::uint32_t insert(const base::Hash128& hash, std::string_view key);
  // One more entry for a key, behind its `first`; kNoEntry when there are no more numbers.
  std::uint32_t insert_behind(std::uint32_t first);
  // Makes an entry the first of its key.
  void lead(std::uint32_t entry);
  // The key goes with its last entry. O(entries of the key).
  void erase(std::uint32_t entry);

  Entry& operator[](std::uint32_t entry) { return entries_[entry]; }
  const Entry& operator[](std::uint32_t entry) const { return entries_[entry]; }
  std::string_view key(const Entry& entry) const { return keys_.view(entry.key, entry.key_length); }

  // Entries have numbers below; of those that are free `state` is kFree.
  std::uint32_t end() const { return entries_.size(); }
  std::uint64_t size() const { return entries_.in_use(); }
  // Calls visit(number, entry) for each until it returns false.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t entry = 0; entry < entries_.size(); ++entry) {
      if (entries_[entry].state != PutState::kFree && !visit(entry, entries_[entry])) return;
    }
  }

  struct Memory {
    std::size_t entries, table, keys;
  };
  Memory memory_bytes() const;
  // Each entry is found under its key, and nothing else is in the table. O(all).
  Result<void> verify() const;

 private:
  static constexpr std::uint32_t kSlots = 12;
  struct alignas(64) Group {
    std::uint8_t tags[kSlots];  // 0 = empty
    std::uint8_t passed;        // keys whose way led past here; stays at 255 once there
    std::uint8_t reserved[3];
    std::uint32_t entries[kSlots];
  };
  static_assert(sizeof(Group) == 64);

  struct Table {
    struct Free {
      void operator()(void* block) const { std::free(block); }
    };
    std::unique_ptr<void, Free> memory;
    Group* groups = nullptr;
    std::uint64_t count = 0;  // groups
    std::uint64_t used = 0;   // slots

    bool allocate(std::uint64_t groups_wanted);
    std::uint64_t home(const base::Hash128& hash) const;
    std::uint64_t next(std::uint64_t group) const { return group + 1 == count ? 0 : group + 1; }
    void add(const base::Hash128& hash, std::uint32_t entry);
    // Calls found(group, slot) and is true if the entry is in here.
    template <typename Found>
    bool look_up(const base::Hash128& hash, std::uint32_t entry, Found found);
    bool remove(const base::Hash128& hash, std::uint32_t entry);
    bool replace(const base::Hash128& hash, std::uint32_t entry, std::uint32_t by);
    bool is_full() const { return used * 8 >= count * kSlots * 7; }
  };

  static std::uint8_t tag(const base::Hash128& hash);
  static std::uint32_t matches(const Group& group, std::uint8_t tag);
  std::uint32_t find_in(const Table& table, const base::Hash128& hash, std::string_view key) const;
  std::uint32_t candidate(const base::Hash128& hash) const;
  std::uint32_t first_of(const Entry& entry) const;
  void unlink_behind(std::uint32_t first, std::uint32_t entry);
  bool replace(const base::Hash128& hash, std::uint32_t entry, std::uint32_t by) {
    return table_.replace(hash, entry, by) || old_.replace(hash, entry, by);
  }
  bool make_room();
  void move_groups(std::uint64_t groups);

  const std::uint64_t seed_;
  Table table_;
  Table old_;                // the smaller table while its entries move over
  std::uint64_t moved_ = 0;  // groups of it that are empty by now
  Slab<Entry, 1024> entries_;
  KeyArena keys_;
};

}  // namespace mooncake::store::master
