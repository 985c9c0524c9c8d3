#include "store/client/own_segment.h"

#include <utility>

#include "base/log.h"

namespace mooncake::store {

using base::Task;
using base::TimePoint;

Result<std::unique_ptr<SegmentHolder>> SegmentHolder::create(os::Env env, transfer::Engine& engine,
                                                             std::uint64_t size,
                                                             const std::string& host,
                                                             memory::Preparer* preparer,
                                                             std::shared_ptr<base::Budget> budget) {
  std::unique_ptr<SegmentHolder> holder(new SegmentHolder(env, engine));
  memory::Pool::Options options;
  options.size = size;
  options.name = "mooncake segment";
  options.budget = budget.get();
  holder->memory_ = std::make_shared<Memory>();
  holder->memory_->budget = std::move(budget);
  MC_TRY(holder->memory_->pool, memory::Pool::create(options));
  holder->pins_ = memory::PinnedRanges::create(holder->memory_);
  if (preparer != nullptr) {
    preparer->add(holder->pool(), memory::kReadyFirst, {});
    holder->preparer_ = preparer;
  } else {
    holder->pool().prepare(holder->pool().size());
  }
  engine.registry().share_pool(holder->pool());
  holder->address_.name = engine.name();
  holder->address_.host = host;
  holder->address_.id = env.random.uuid();
  holder->address_.owner = engine.identity().incarnation;
  holder->address_.base = reinterpret_cast<std::uint64_t>(holder->pool().data());
  holder->address_.size = holder->pool().size();
  return holder;
}

SegmentHolder::~SegmentHolder() {
  if (!memory_ || !memory_->pool) return;
  engine_.registry().unshare_pool(pool());
  if (preparer_ != nullptr) preparer_->remove(pool());
  // A process that stands still in the middle of a copy may yet write there: then the memory stays.
  if (leaving_ && !leaving_->is_clear()) static_cast<void>(memory_->pool.release());
}

Task<Result<void>> SegmentHolder::renew(TimePoint deadline) {
  co_await retire(deadline);
  if (leaving_ && !leaving_->is_clear()) {
    co_return fail(Code::kBusy, "a process of this host stands still in the middle of a copy");
  }
  leaving_.reset();
  auto extents = memory::ExtentTable::create(address_.size, pins_);
  if (!extents) co_return fail(std::move(extents).error());
  extents_ = std::move(*extents);
  auto region = engine_.register_memory(address_.base, address_.size, "*", extents_);
  if (!region) {
    extents_.reset();
    co_return fail(std::move(region).error().with_context("register the store segment"));
  }
  address_.incarnation = env_.random.segment_incarnation();
  address_.region_key = static_cast<std::uint64_t>(region->key);
  co_return Result<void>();
}

Task<void> SegmentHolder::retire(TimePoint deadline) {
  if (!extents_) co_return;
  extents_->fence_all(base::Version::from_value(~std::uint64_t{0}));
  auto removed = engine_.registry().remove(address_.base);
  if (removed) {
    leaving_ = *removed;
    const Result<void> ended = co_await engine_.finish_unregister(*std::move(removed), deadline);
    if (!ended) base::log_warning("store segment {}: {}", address_.name, ended.error().message());
  }
  extents_.reset();
}

OwnSegment SegmentHolder::description() const { return {address_, pool().prepared()}; }

}  // namespace mooncake::store
