#include "transfer/lanes.h"

#include <algorithm>
#include <cassert>

namespace mooncake::transfer {

Lanes::Lanes(os::Executor& executor, const Capabilities& capabilities,
             const SliceScheduler::Rules& rules)
    : executor_(executor), scheduler_(rules) {
  for (std::uint32_t i = 0; i < std::max(1u, capabilities.lanes); ++i)
    scheduler_.add_rail({capabilities.bandwidth_bytes_per_second, capabilities.latency});
}

Lanes::~Lanes() {
  assert(waiting_.empty());
  executor_.cancel(timer_);
}

Task<Result<Lanes::Pass>> Lanes::enter(std::uint64_t bytes, Priority priority, TimePoint deadline,
                                       std::optional<std::uint32_t> avoid,
                                       os::CancelToken* cancel) {
  SliceScheduler::Slice slice;
  slice.id = next_++;
  slice.bytes = bytes;
  slice.priority = priority;
  slice.deadline = deadline;
  slice.avoid = avoid;
  Turn turn(executor_);
  waiting_.emplace(slice.id, &turn);
  scheduler_.enqueue(slice);
  pump();
  os::CancelToken::Watch watch(cancel, [this, &turn, id = slice.id] {
    if (scheduler_.withdraw(id)) turn.set(fail(Code::kCancelled, "while it waited for a lane"));
  });
  auto decision = co_await turn;
  waiting_.erase(slice.id);
  if (!decision) co_return fail(std::move(decision).error());
  co_return Pass(*this, *decision);
}

void Lanes::finish(SliceId slice, End end) {
  scheduler_.finished(slice, end, executor_.now());
  pump();
}

void Lanes::pump() {
  while (const auto decision = scheduler_.next(executor_.now())) {
    Turn& turn = *waiting_.at(decision->slice);
    if (decision->goes) {
      turn.set(*decision);
    } else {
      turn.set(fail(Code::kDeadlineExceeded, "while it waited for a lane"));
    }
  }
  watch_deadlines();
}

void Lanes::watch_deadlines() {
  const auto first = scheduler_.next_deadline();
  if (!first || (timer_ != os::TimerId::kNone && timer_at_ <= *first)) return;
  executor_.cancel(timer_);
  timer_at_ = *first;
  timer_ = executor_.run_at(*first, [this] {
    timer_ = os::TimerId::kNone;
    pump();
  });
}

}  // namespace mooncake::transfer
