// Event: happens once; any number of tasks wait for it, each until its own deadline.
#pragma once

#include <algorithm>
#include <vector>

#include "os/cancel.h"
#include "os/executor.h"

namespace mooncake::os {

// Executor thread only. Must outlive those that wait.
class Event {
 public:
  explicit Event(Executor& executor) : executor_(executor) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void set() {
    is_set_ = true;
    for (Completion<bool>* waiter : std::exchange(waiters_, {}))
      waiter->set(true);
  }
  bool is_set() const { return is_set_; }

  // False when the deadline, or a cancel, came first.
  Task<bool> wait(TimePoint deadline, CancelToken* cancel = nullptr) {
    if (is_set_) co_return true;
    Completion<bool> happened(executor_);
    waiters_.push_back(&happened);
    const auto leave = [this, &happened] {
      std::erase(waiters_, &happened);
      happened.set(false);
    };
    const TimerId timer = executor_.run_at(deadline, leave);
    CancelToken::Watch watch(cancel, leave);
    const bool in_time = co_await happened;
    executor_.cancel(timer);
    co_return in_time;
  }

 private:
  Executor& executor_;
  bool is_set_ = false;
  std::vector<Completion<bool>*> waiters_;
};

}  // namespace mooncake::os
