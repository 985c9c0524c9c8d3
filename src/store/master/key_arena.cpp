#include "store/master/key_arena.h"

#include <cassert>
#include <cstring>

namespace mooncake::store::master {

std::size_t KeyArena::class_of(std::size_t length) {
  if (length <= 256) return (length + 3) / 4 - 1;
  if (length <= 1024) return 64 + (length - 256 + 15) / 16 - 1;
  return 64 + 48 + (length - 1024 + 127) / 128 - 1;
}

std::uint16_t KeyArena::size_of(std::size_t index) {
  if (index < 64) return static_cast<std::uint16_t>((index + 1) * 4);
  if (index < 64 + 48) return static_cast<std::uint16_t>(256 + (index - 63) * 16);
  return static_cast<std::uint16_t>(1024 + (index - 111) * 128);
}

void KeyArena::link(std::size_t index, std::uint32_t page) {
  const std::uint32_t head = with_room_[index];
  pages_[page].next = head;
  pages_[page].previous = kNoPage;
  if (head != kNoPage) pages_[head].previous = page;
  with_room_[index] = page;
}

void KeyArena::unlink(std::size_t index, std::uint32_t page) {
  const Page& gone = pages_[page];
  if (gone.next != kNoPage) pages_[gone.next].previous = gone.previous;
  (gone.previous == kNoPage ? with_room_[index] : pages_[gone.previous].next) = gone.next;
}

// A page of this class with room, linked; kNoPage when there can't be another one.
std::uint32_t KeyArena::open_page(std::size_t index) {
  std::uint32_t page = free_pages_;
  if (page != kNoPage) {
    free_pages_ = pages_[page].next;
  } else {
    if (pages_.size() == kMaxPages) return kNoPage;
    page = static_cast<std::uint32_t>(pages_.size());
    pages_.emplace_back();
  }
  pages_[page] = Page{};
  pages_[page].memory.reset(new Memory);
  pages_[page].size = size_of(index);
  ++live_pages_;
  link(index, page);
  return page;
}

std::uint32_t KeyArena::add(std::string_view text) {
  assert(!text.empty() && text.size() <= kMaxKeyLength);
  const std::size_t index = class_of(text.size());
  std::uint32_t number = with_room_[index];
  if (number == kNoPage) number = open_page(index);
  if (number == kNoPage) return kNoKey;
  Page& page = pages_[number];
  std::uint32_t granule = page.free;
  if (granule == kNoText) {
    granule = std::uint32_t{page.fresh++} * page.size / kGranule;
  } else {
    std::memcpy(&page.free, page.memory->text + std::size_t{granule} * kGranule, sizeof page.free);
  }
  ++page.used;
  if (!has_room(page)) unlink(index, number);
  std::memcpy(page.memory->text + std::size_t{granule} * kGranule, text.data(), text.size());
  ++texts_;
  return number * kGranules + granule;
}

void KeyArena::remove(std::uint32_t key, std::size_t length) {
  const std::uint32_t number = key / kGranules;
  const std::size_t index = class_of(length);
  Page& page = pages_[number];
  assert(page.size == size_of(index) && page.used > 0);
  if (!has_room(page)) link(index, number);
  std::memcpy(page.memory->text + std::size_t{key % kGranules} * kGranule, &page.free,
              sizeof page.free);
  page.free = static_cast<std::uint16_t>(key % kGranules);
  --texts_;
  if (--page.used > 0) return;
  unlink(index, number);
  page = Page{};
  page.next = free_pages_;
  free_pages_ = number;
  --live_pages_;
}

std::size_t KeyArena::memory_bytes() const {
  return live_pages_ * std::size_t{kPageSize} + pages_.capacity() * sizeof(Page);
}

Result<void> KeyArena::verify() const {
  std::size_t used = 0;
  std::size_t live = 0;
  std::size_t roomy = 0;
  for (const Page& page : pages_) {
    if (!page.memory) continue;
    used += page.used;
    ++live;
    if (has_room(page)) ++roomy;
    if (page.used == 0 || page.used > kPageSize / page.size) {
      return fail(Code::kInternal, "key arena: a page's count is wrong");
    }
  }
  std::size_t listed = 0;
  for (std::size_t index = 0; index < kClasses; ++index) {
    for (std::uint32_t page = with_room_[index]; page != kNoPage; page = pages_[page].next) {
      if (!pages_[page].memory || pages_[page].size != size_of(index) || ++listed > roomy) {
        return fail(Code::kInternal, "key arena: a page is in the wrong list");
      }
    }
  }
  if (used != texts_ || live != live_pages_ || listed != roomy) {
    return fail(Code::kInternal, "key arena: sums are wrong");
  }
  return {};
}

}  // namespace mooncake::store::master
