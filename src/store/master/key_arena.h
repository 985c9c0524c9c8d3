// KeyArena: the text of every key, stored once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "mooncake/result.h"
#include "store/types.h"

namespace mooncake::store::master {

// Texts of like length share pages of 32 KiB; a page that has become empty serves any length again,
// so that the arena never needs more than its texts and one page for each of about 140 lengths.
// Rounding costs at most 3 bytes up to 256, 15 up to 1024, 127 beyond. One thread.
class KeyArena {
 public:
  static constexpr std::uint32_t kNoKey = 0xFFFFFFFF;

  // `text` has 1 .. kMaxKeyLength bytes. kNoKey when 16 GiB are full.
  std::uint32_t add(std::string_view text);
  void remove(std::uint32_t key, std::size_t length);
  std::string_view view(std::uint32_t key, std::size_t length) const { return {at(key), length}; }
  const char* at(std::uint32_t key) const {
    return pages_[key / kGranules].memory->text + std::size_t{key % kGranules} * kGranule;
  }

  std::size_t texts() const { return texts_; }
  std::size_t memory_bytes() const;
  // Counts and lists of pages are whole. O(pages).
  Result<void> verify() const;

 private:
  static constexpr std::uint32_t kGranule = 4;
  static constexpr std::uint32_t kPageSize = 32768;
  static constexpr std::uint32_t kGranules = kPageSize / kGranule;
  static constexpr std::uint32_t kMaxPages = 0xFFFFFFFFu / kGranules;
  static constexpr std::uint32_t kNoPage = 0xFFFFFFFF;
  static constexpr std::uint16_t kNoText = 0xFFFF;
  static constexpr std::size_t kClasses = 64 + 48 + 24 + 1;

  struct alignas(64) Memory {
    char text[kPageSize];
  };
  struct Page {
    std::unique_ptr<Memory> memory;  // none while the page is free
    std::uint16_t size = 0;          // bytes of each text's place
    std::uint16_t used = 0;
    std::uint16_t fresh = 0;       // places from here on were never used
    std::uint16_t free = kNoText;  // granule of a place that was given back
    std::uint32_t next = kNoPage;  // in the list of pages with room, or of free pages
    std::uint32_t previous = kNoPage;
  };
  static_assert(sizeof(Page) == 24);

  static std::size_t class_of(std::size_t length);
  static std::uint16_t size_of(std::size_t index);
  std::uint32_t open_page(std::size_t index);
  void link(std::size_t index, std::uint32_t page);
  void unlink(std::size_t index, std::uint32_t page);
  static bool has_room(const Page& page) {
    return page.free != kNoText || page.fresh < kPageSize / page.size;
  }

  std::vector<Page> pages_;
  std::array<std::uint32_t, kClasses> with_room_ = filled();
  std::uint32_t free_pages_ = kNoPage;
  std::size_t live_pages_ = 0;
  std::size_t texts_ = 0;

  static constexpr std::array<std::uint32_t, kClasses> filled() {
    std::array<std::uint32_t, kClasses> lists{};
    for (auto& list : lists)
      list = kNoPage;
    return lists;
  }
};

}  // namespace mooncake::store::master
