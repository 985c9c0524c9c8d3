// BlockedCaller: a thread that waits for work it has given to an executor (os/run_blocking.h).
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace mooncake::os {

// Held by both sides: the thread may have gone on before finish() has returned. Any thread.
class BlockedCaller {
 public:
  // The last act of the work.
  void finish() { raise(finished_); }
  bool finished() const {
    std::lock_guard lock(mutex_);
    return finished_;
  }
  // Ends one park() early, the one under way or the next.
  void call() { raise(called_); }

  // Until finish(), call() or `until`. True when finished.
  bool park(base::TimePoint until) {
    std::unique_lock lock(mutex_);
    const auto over = [this] { return finished_ || called_; };
    if (until == base::TimePoint::max()) {
      changed_.wait(lock, over);
    } else {
      changed_.wait_for(lock, until - base::system_clock().now(), over);
    }
    called_ = false;
    return finished_;
  }

 private:
  void raise(bool& flag) {
    {
      std::lock_guard lock(mutex_);
      flag = true;
    }
    changed_.notify_one();
  }

  mutable std::mutex mutex_;  // guards the next two
  bool finished_ = false;
  bool called_ = false;
  std::condition_variable changed_;
};

}  // namespace mooncake::os
