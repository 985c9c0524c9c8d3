#include "store/master/directory.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include "store/master/huge_pages.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace mooncake::store::master {

namespace {

constexpr std::uint64_t kFirstGroups = 16;
// At most seven eighths of the slots are used, and a table has a quarter more of them than the one
// before: the old one is empty long before the new one is full when each insertion moves this many.
constexpr std::uint64_t kGroupsPerStep = 6;
// Small tables double; their memory doesn't count.
constexpr std::uint64_t kSmallGroups = 4096;

}  // namespace

bool Directory::Table::allocate(std::uint64_t groups_wanted) {
  // calloc() leaves large memory to the kernel's zero pages: no pause here.
  void* raw = std::calloc(groups_wanted + 1, sizeof(Group));
  if (raw == nullptr) return false;
  memory.reset(raw);
  prefer_huge_pages(raw, (groups_wanted + 1) * sizeof(Group));
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  groups = reinterpret_cast<Group*>((address + alignof(Group) - 1) & ~(alignof(Group) - 1));
  count = groups_wanted;
  used = 0;
  return true;
}

std::uint64_t Directory::Table::home(const base::Hash128& hash) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{hash.high} * count >> 64);
}

void Directory::Table::add(const base::Hash128& hash, std::uint32_t entry) {
  std::uint64_t at = home(hash);
  for (;; at = next(at)) {
    Group& group = groups[at];
    const std::uint32_t empty = matches(group, 0);
    if (empty != 0) {
      const int slot = std::countr_zero(empty);
      group.tags[slot] = tag(hash);
      group.entries[slot] = entry;
      ++used;
      return;
    }
    if (group.passed != 255) ++group.passed;
  }
}

template <typename Found>
bool Directory::Table::look_up(const base::Hash128& hash, std::uint32_t entry, Found found) {
  if (count == 0) return false;
  std::uint64_t at = home(hash);
  for (std::uint64_t tried = 0; tried < count; ++tried, at = next(at)) {
    Group& group = groups[at];
    for (std::uint32_t bits = matches(group, tag(hash)); bits != 0; bits &= bits - 1) {
      const int slot = std::countr_zero(bits);
      if (group.entries[slot] != entry) continue;
      found(at, slot);
      return true;
    }
    if (group.passed == 0) return false;
  }
  return false;
}

bool Directory::Table::remove(const base::Hash128& hash, std::uint32_t entry) {
  return look_up(hash, entry, [&](std::uint64_t at, int slot) {
    groups[at].tags[slot] = 0;
    --used;
    for (std::uint64_t way = home(hash); way != at; way = next(way)) {
      if (groups[way].passed != 255) --groups[way].passed;
    }
  });
}

bool Directory::Table::replace(const base::Hash128& hash, std::uint32_t entry, std::uint32_t by) {
  return look_up(hash, entry, [&](std::uint64_t at, int slot) { groups[at].entries[slot] = by; });
}

Directory::Directory(std::uint64_t seed) : seed_(seed) {
  if (!table_.allocate(kFirstGroups)) std::abort();
}

std::uint8_t Directory::tag(const base::Hash128& hash) {
  const auto tag = static_cast<std::uint8_t>(hash.low);
  return tag == 0 ? 1 : tag;
}

// Bit per slot whose tag is this one.
std::uint32_t Directory::matches(const Group& group, std::uint8_t tag) {
#if defined(__SSE2__)
  const __m128i line = _mm_load_si128(reinterpret_cast<const __m128i*>(&group));
  const __m128i equal = _mm_cmpeq_epi8(line, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<std::uint32_t>(_mm_movemask_epi8(equal)) & ((1u << kSlots) - 1);
#else
  std::uint32_t bits = 0;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    bits |= static_cast<std::uint32_t>(group.tags[slot] == tag) << slot;
  }
  return bits;
#endif
}

void Directory::prefetch_group(const base::Hash128& hash) const {
  __builtin_prefetch(&table_.groups[table_.home(hash)]);
}

// The first entry with the right tag in the key's home group: the right one nearly always.
std::uint32_t Directory::candidate(const base::Hash128& hash) const {
  const Group& group = table_.groups[table_.home(hash)];
  const std::uint32_t bits = matches(group, tag(hash));
  return bits == 0 ? kNoEntry : group.entries[std::countr_zero(bits)];
}

void Directory::prefetch_entry(const base::Hash128& hash, bool whole) const {
  const std::uint32_t entry = candidate(hash);
  if (entry == kNoEntry) return;
  __builtin_prefetch(&entries_[entry], 1);
  if (whole) __builtin_prefetch(entries_[entry].placements, 1);
}

void Directory::prefetch_text(const base::Hash128& hash) const {
  const std::uint32_t number = candidate(hash);
  if (number == kNoEntry) return;
  const Entry& entry = entries_[number];
  if (entry.hash_high != hash.high) return;
  const char* text = keys_.at(entry.key);
  __builtin_prefetch(text);
  __builtin_prefetch(text + entry.key_length - 1);
  // The neighbours in the queue are written when this one moves to its end.
  for (const std::uint32_t neighbour : {entry.queue.next, entry.queue.previous}) {
    if (neighbour != kNoEntry) __builtin_prefetch(&entries_[neighbour].queue, 1);
  }
}

void Directory::prefetch_erase_behind(const Entry& entry) const {
  if (entry.queue.next == kNoEntry) return;
  const Entry& next = entries_[entry.queue.next];
  __builtin_prefetch(&table_.groups[table_.home({next.hash_high, next.hash_low})], 1);
  __builtin_prefetch(keys_.at(next.key), 1);
  if (next.queue.next == kNoEntry) return;
  __builtin_prefetch(&entries_[next.queue.next], 1);
  __builtin_prefetch(entries_[next.queue.next].placements, 1);
}

std::uint32_t Directory::find_in(const Table& table, const base::Hash128& hash,
                                 std::string_view key) const {
  if (table.used == 0) return kNoEntry;
  std::uint64_t at = table.home(hash);
  for (std::uint64_t tried = 0; tried < table.count; ++tried, at = table.next(at)) {
    const Group& group = table.groups[at];
    for (std::uint32_t bits = matches(group, tag(hash)); bits != 0; bits &= bits - 1) {
      const std::uint32_t number = group.entries[std::countr_zero(bits)];
      const Entry& entry = entries_[number];
      if (entry.hash_high == hash.high && entry.hash_low == hash.low && this->key(entry) == key) {
        return number;
      }
    }
    if (group.passed == 0) return kNoEntry;
  }
  return kNoEntry;
}

std::uint32_t Directory::find(const base::Hash128& hash, std::string_view key) const {
  const std::uint32_t entry = find_in(table_, hash, key);
  return entry != kNoEntry || old_.used == 0 ? entry : find_in(old_, hash, key);
}

std::uint32_t Directory::insert(const base::Hash128& hash, std::string_view key) {
  if (!make_room()) return kNoEntry;
  const std::uint32_t text = keys_.add(key);
  if (text == KeyArena::kNoKey) return kNoEntry;
  const std::uint32_t number = entries_.take();
  if (number == kNone) {
    keys_.remove(text, key.size());
    return kNoEntry;
  }
  Entry& entry = entries_[number];
  entry.hash_high = hash.high;
  entry.hash_low = hash.low;
  entry.key = text;
  entry.key_length = static_cast<std::uint16_t>(key.size());
  table_.add(hash, number);
  return number;
}

std::uint32_t Directory::insert_behind(std::uint32_t first) {
  const std::uint32_t number = entries_.take();
  if (number == kNone) return kNoEntry;
  Entry& before = entries_[first];
  Entry& entry = entries_[number];
  entry.hash_high = before.hash_high;
  entry.hash_low = before.hash_low;
  entry.key = before.key;
  entry.key_length = before.key_length;
  entry.other = std::exchange(before.other, number);
  return number;
}

std::uint32_t Directory::first_of(const Entry& entry) const {
  return find({entry.hash_high, entry.hash_low}, key(entry));
}

void Directory::unlink_behind(std::uint32_t first, std::uint32_t number) {
  while (entries_[first].other != number)
    first = entries_[first].other;
  entries_[first].other = std::exchange(entries_[number].other, kNoEntry);
}

void Directory::lead(std::uint32_t number) {
  Entry& entry = entries_[number];
  const std::uint32_t first = first_of(entry);
  if (first == number) return;
  unlink_behind(first, number);
  entry.other = first;
  [[maybe_unused]] const bool replaced = replace({entry.hash_high, entry.hash_low}, first, number);
  assert(replaced);
}

void Directory::erase(std::uint32_t number) {
  const Entry& entry = entries_[number];
  const base::Hash128 hash{entry.hash_high, entry.hash_low};
  if (entry.other != kNoEntry && replace(hash, number, entry.other)) {
    // The next one leads from now on, and has the text.
  } else if (entry.other == kNoEntry &&
             (table_.remove(hash, number) || old_.remove(hash, number))) {
    keys_.remove(entry.key, entry.key_length);
  } else {
    unlink_behind(first_of(entry), number);
  }
  entries_.give_back(number);
}

bool Directory::make_room() {
  if (old_.count != 0) move_groups(kGroupsPerStep);
  if (!table_.is_full()) return true;
  if (old_.count != 0) move_groups(old_.count);
  Table larger;
  const std::uint64_t count = table_.count;
  if (!larger.allocate(count < kSmallGroups ? count * 2 : count + count / 4)) return false;
  old_ = std::move(table_);
  table_ = std::move(larger);
  moved_ = 0;
  return true;
}

// Empties the next groups of the old table, and drops it when it is empty.
void Directory::move_groups(std::uint64_t groups) {
  for (; groups > 0 && moved_ < old_.count; --groups, ++moved_) {
    if (moved_ + 2 < old_.count) {
      const Group& ahead = old_.groups[moved_ + 2];
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if (ahead.tags[slot] != 0) __builtin_prefetch(&entries_[ahead.entries[slot]]);
      }
    }
    Group& group = old_.groups[moved_];
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      if (group.tags[slot] == 0) continue;
      const Entry& entry = entries_[group.entries[slot]];
      table_.add({entry.hash_high, entry.hash_low}, group.entries[slot]);
      group.tags[slot] = 0;
      --old_.used;
    }
  }
  if (moved_ == old_.count) old_ = Table{};
}

Directory::Memory Directory::memory_bytes() const {
  return {entries_.memory_bytes(), (table_.count + old_.count) * sizeof(Group),
          keys_.memory_bytes()};
}

Result<void> Directory::verify() const {
  std::uint64_t found = 0;
  std::uint64_t reached = 0;
  std::uint64_t keys = 0;
  bool wrong = false;
  for_each([&](std::uint32_t number, const Entry& entry) {
    ++found;
    const base::Hash128 hash{entry.hash_high, entry.hash_low};
    wrong = this->hash(key(entry)) != hash;
    const std::uint32_t first = find(hash, key(entry));
    if (first == kNoEntry) wrong = true;
    if (wrong || first != number) return !wrong;
    ++keys;
    for (std::uint32_t one = first; one != kNoEntry; one = entries_[one].other) {
      wrong = wrong || entries_[one].key != entry.key || ++reached > entries_.in_use();
      if (wrong) break;
    }
    return !wrong;
  });
  if (wrong) return fail(Code::kInternal, "directory: an entry is not found under its key");
  if (found != entries_.in_use() || found != reached || keys != keys_.texts() ||
      keys != table_.used + old_.used) {
    return fail(Code::kInternal, "directory: sums are wrong");
  }
  return keys_.verify();
}

}  // namespace mooncake::store::master
