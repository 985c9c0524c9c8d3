// run_blocking(): the border between blocking callers and tasks.
#pragma once

#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "os/executor.h"

namespace mooncake::os {

namespace detail {

// Shared, since the waiter may be gone before notify_one() has returned.
template <typename T>
struct BlockingCall {
  std::optional<T> value;
  std::atomic<bool> done{false};

  void finish() {
    done.store(true, std::memory_order_release);
    done.notify_one();
  }
};

// The same for a waiter that looks up from time to time, which std::atomic can't.
template <typename T>
struct WatchedCall {
  std::optional<T> value;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;  // guarded by mutex

  void finish() {
    std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  }
  bool wait_for(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, duration, [this] { return done; });
  }
};

// A frame that nobody owns: it ends by waking the caller.
struct CallRunner {
  struct promise_type {
    CallRunner get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
};

template <typename T, typename Call>
CallRunner run_call(Task<T>* waiting, std::shared_ptr<Call> call) {
  {
    Task<T> running = std::move(*waiting);
    call->value.emplace(co_await running);
  }
  call->finish();
}

inline CallRunner run_behind(std::shared_ptr<Task<void>> waiting, std::function<void()> then) {
  {
    Task<void> running = std::move(*waiting);
    co_await running;
  }
  then();
}

inline Task<bool> then_true(Task<void> task) {
  co_await task;
  co_return true;
}

}  // namespace detail

// Runs `task` on the executor and blocks this thread until it has ended; nothing when the executor
// has stopped before it could begin. For the blocking facades at the edge; never on the executor's
// own thread. Deadlines are the task's business: when this returns, the task has ended and touches
// nothing any more.
template <typename T>
std::optional<T> run_blocking(Executor& executor, Task<T> task) {
  assert(!executor.on_this_thread());
  auto call = std::make_shared<detail::BlockingCall<T>>();
  if (!executor.post([&task, call] { detail::run_call(&task, call); })) return std::nullopt;
  call->done.wait(false, std::memory_order_acquire);
  return std::move(call->value);
}
// The same, and while it waits asks `give_up` on this thread each `interval`. Once that has said
// yes, `cancel`, which is meant to hurry the task, runs on the executor each `interval` until it
// has ended.
template <typename T>
std::optional<T> run_blocking(Executor& executor, Task<T> task, std::chrono::milliseconds interval,
                              const std::function<bool()>& give_up,
                              const std::function<void()>& cancel) {
  assert(!executor.on_this_thread());
  auto call = std::make_shared<detail::WatchedCall<T>>();
  if (!executor.post([&task, call] { detail::run_call(&task, call); })) return std::nullopt;
  bool given_up = false;
  while (!call->wait_for(interval)) {
    given_up = given_up || give_up();
    if (!given_up) continue;
    // One that is late, so that what it refers to may be gone, finds the value there.
    executor.post([call, cancel] {
      if (!call->value) cancel();
    });
  }
  return std::move(call->value);
}
// Starts `task` on the executor and returns at once; `then` runs there after its end. False when
// the executor has stopped: then neither runs.
inline bool run_behind(Executor& executor, Task<void> task, std::function<void()> then) {
  auto waiting = std::make_shared<Task<void>>(std::move(task));
  return executor.post([waiting, then = std::move(then)]() mutable {
    detail::run_behind(std::move(waiting), std::move(then));
  });
}
inline bool run_blocking(Executor& executor, Task<void> task) {
  return run_blocking(executor, detail::then_true(std::move(task))).has_value();
}

}  // namespace mooncake::os
