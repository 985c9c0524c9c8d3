// Lanes: the connections of one transport to one peer, shared by all batches that go there. What
// the scheduler decides becomes tasks that wait and go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/task.h"
#include "mooncake/result.h"
#include "os/cancel.h"
#include "os/executor.h"
#include "transfer/selection/slice_scheduler.h"
#include "transfer/transport.h"

namespace mooncake::transfer {

// Executor thread only. Outlives its passes.
class Lanes {
 public:
  using End = SliceScheduler::End;

  Lanes(os::Executor& executor, const Capabilities& capabilities,
        const SliceScheduler::Rules& rules);
  ~Lanes();

  // One attempt on one lane; has ended when it goes out of scope.
  class Pass {
   public:
    Pass(Lanes& lanes, SliceScheduler::Decision decision) : lanes_(&lanes), decision_(decision) {}
    Pass(Pass&& other) noexcept
        : lanes_(std::exchange(other.lanes_, nullptr)), decision_(other.decision_) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() { end(End::kCalledOff); }

    std::uint32_t lane() const { return decision_.rail; }
    base::Duration patience() const { return decision_.patience; }
    void end(End end) {
      if (lanes_) std::exchange(lanes_, nullptr)->finish(decision_.slice, end);
    }

   private:
    Lanes* lanes_;
    SliceScheduler::Decision decision_;
  };

  // Waits for a lane with room. kDeadlineExceeded, kCancelled.
  Task<Result<Pass>> enter(std::uint64_t bytes, Priority priority, TimePoint deadline,
                           std::optional<std::uint32_t> avoid, os::CancelToken* cancel);

  const SliceScheduler& scheduler() const { return scheduler_; }

 private:
  using Turn = os::Completion<Result<SliceScheduler::Decision>>;

  void finish(SliceId slice, End end);
  void pump();
  void watch_deadlines();

  os::Executor& executor_;
  SliceScheduler scheduler_;
  SliceId next_ = 1;
  std::map<SliceId, Turn*> waiting_;
  os::TimerId timer_ = os::TimerId::kNone;  // for the first deadline of those that wait
  TimePoint timer_at_{};
};

}  // namespace mooncake::transfer
