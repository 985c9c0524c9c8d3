// Memory that is read in no order is better off in huge pages: each of its cache misses else comes
// with one in the page table.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace mooncake::store::master {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Asks the kernel for them where whole ones fit into the block; it may have none.
inline void prefer_huge_pages(void* block, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t first = (begin + kHugePage - 1) & ~(kHugePage - 1);
  const std::uintptr_t end = (begin + bytes) & ~(kHugePage - 1);
  if (first < end)
    static_cast<void>(::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE));
}

}  // namespace mooncake::store::master
