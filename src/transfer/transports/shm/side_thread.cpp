#include "transfer/transports/shm/side_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace mooncake::transfer::shm {

SideThread::~SideThread() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

base::Task<bool> SideThread::run(std::function<void()> work) {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error&) {
      co_return false;
    }
    ::pthread_setname_np(thread_.native_handle(), "mc-vm-copy");
  }
  os::Completion<bool> done(executor_);
  {
    std::lock_guard lock(mutex_);
    works_.push_back([this, &work, &done] {
      work();
      executor_.post([&done] { done.set(true); });
    });
  }
  wake_.notify_one();
  co_return co_await done;
}

void SideThread::serve() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !works_.empty(); });
    if (works_.empty()) return;
    const std::function<void()> work = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace mooncake::transfer::shm
