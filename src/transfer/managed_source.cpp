// Slabs out of pools of an engine, and a registration of its own for each buffer.
#include <cassert>
#include <utility>

#include "memory/registry.h"
#include "transfer/engine.h"
#include "transfer/managed_memory.h"

namespace mooncake::transfer {

namespace {

// Over once the accesses that were served by this process have ended, too: they do no harm any
// more, but a peer whose write was cut off would only look the address up again, and go on.
bool is_over(memory::Registry::Removed& removed) {
  if (removed.accesses() != 0 || !removed.is_clear()) return false;
  removed.retire();
  return true;
}

ManagedMemory::Cleared close_buffer(TransferEngine& engine, void* buffer) {
  auto removed = engine.engine().registry().remove_own(reinterpret_cast<std::uint64_t>(buffer));
  assert(removed && "open() has registered it, and only close() takes that back");
  if (is_over(*removed)) return {};
  return [left = *std::move(removed)]() mutable { return is_over(left); };
}

}  // namespace

ManagedMemory::Source managed_source(TransferEngine& engine) {
  return {
      [&engine](std::uint64_t size) { return engine.allocate_pool(size); },
      [&engine](void* slab) { engine.free_pool(slab); },
      [&engine](void* buffer, std::uint64_t size) -> Result<void> {
        MC_CHECK(engine.engine().registry().add_own(reinterpret_cast<std::uint64_t>(buffer), size));
        return {};
      },
      [&engine](void* buffer) { return close_buffer(engine, buffer); }};
}

}  // namespace mooncake::transfer
