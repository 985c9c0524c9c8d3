// SideThread: work of an executor that something else may hold up for any time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/task.h"
#include "os/executor.h"

namespace mooncake::transfer::shm {

// One thread, that starts when it is first needed. Executor thread only.
class SideThread {
 public:
  explicit SideThread(os::Executor& executor) : executor_(executor) {}
  ~SideThread();  // nothing is under way
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Runs `work` there, after what came before, and returns when it has ended. False, and it has not
  // run, when no thread can be had.
  base::Task<bool> run(std::function<void()> work);

 private:
  void serve();

  os::Executor& executor_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> works_;  // guarded by mutex
  bool stopping_ = false;                    // guarded by mutex
  std::thread thread_;
};

}  // namespace mooncake::transfer::shm
