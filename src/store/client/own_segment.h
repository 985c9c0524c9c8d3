// OwnSegment's life: the pool that this client gives, its extent table, and its registration with
// the engine. Each mount is a new incarnation with a new key and an empty table, so that every
// promise made about an earlier mount is void.
#pragma once

#include <memory>
#include <optional>

#include "base/task.h"
#include "memory/extent_table.h"
#include "memory/pinned_ranges.h"
#include "memory/pool.h"
#include "store/client/messages.h"
#include "transfer/engine.h"

namespace mooncake::store {

// Executor thread only.
class SegmentHolder {
 public:
  // Allocates and begins preparation; returns when the first part is ready. `preparer` null: all of
  // it is prepared on the spot.
  static Result<std::unique_ptr<SegmentHolder>> create(os::Env env, transfer::Engine& engine,
                                                       std::uint64_t size, const std::string& host,
                                                       memory::Preparer* preparer,
                                                       std::shared_ptr<base::Budget> budget);
  ~SegmentHolder();
  SegmentHolder(const SegmentHolder&) = delete;
  SegmentHolder& operator=(const SegmentHolder&) = delete;

  // Voids the mount before it, if any, and opens a new one. kBusy while a process that stands still
  // may yet write into this memory.
  base::Task<Result<void>> renew(base::TimePoint deadline);
  // Ends peers' accesses and the registration. Await it before destruction.
  base::Task<void> retire(base::TimePoint deadline);

  OwnSegment description() const;
  const memory::ExtentTable* extents() const { return extents_.get(); }

 private:
  // Readers that have pinned a part of it may keep it for longer than its holder.
  struct Memory {
    std::shared_ptr<base::Budget> budget;  // outlives the pool
    std::unique_ptr<memory::Pool> pool;
  };
  SegmentHolder(os::Env env, transfer::Engine& engine) : env_(env), engine_(engine) {}
  memory::Pool& pool() const { return *memory_->pool; }

  os::Env env_;
  transfer::Engine& engine_;
  memory::Preparer* preparer_ = nullptr;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<memory::PinnedRanges> pins_;  // of all mounts
  std::shared_ptr<memory::ExtentTable> extents_;
  std::optional<memory::Registry::Removed> leaving_;  // the mount before
  SegmentAddress address_;
};

}  // namespace mooncake::store
