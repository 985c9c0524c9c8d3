#include "base/budget.h"

#include <fmt/format.h>

#include <string>

namespace mooncake::base {

namespace {

constexpr std::array<std::string_view, kMemoryUses> kNames{
    "segments", "buffers", "receive", "quarantine", "dead_mappings", "mappings"};

bool is_bounded(MemoryUse use) { return use != MemoryUse::kMappings; }

}  // namespace

std::string_view to_string(MemoryUse use) { return kNames[static_cast<std::size_t>(use)]; }

Result<void> Budget::take(MemoryUse use, std::uint64_t bytes, std::string_view what) {
  std::uint64_t used = total_.load(std::memory_order_relaxed);
  do {
    if (bytes <= limit_ && used <= limit_ - bytes) continue;
    std::string parts;
    for (std::size_t i = 0; i < kMemoryUses; ++i) {
      const std::uint64_t part = by_use_[i].load(std::memory_order_relaxed);
      if (part == 0 || !is_bounded(static_cast<MemoryUse>(i))) continue;
      parts += fmt::format("{}{} {}", parts.empty() ? " (" : ", ", kNames[i], part);
    }
    if (!parts.empty()) parts += ')';
    return fail(Code::kOutOfMemory, fmt::format("{} asks for {} bytes; of the {} of memory_budget "
                                                "(MOONCAKE_MEMORY_BUDGET) {} are in use{}",
                                                what, bytes, limit_, used, parts));
  } while (!total_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  by_use_[static_cast<std::size_t>(use)].fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

void Budget::add(MemoryUse use, std::uint64_t bytes) {
  by_use_[static_cast<std::size_t>(use)].fetch_add(bytes, std::memory_order_relaxed);
  if (is_bounded(use)) total_.fetch_add(bytes, std::memory_order_relaxed);
}

void Budget::give_back(MemoryUse use, std::uint64_t bytes) {
  by_use_[static_cast<std::size_t>(use)].fetch_sub(bytes, std::memory_order_relaxed);
  if (is_bounded(use)) total_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace mooncake::base
