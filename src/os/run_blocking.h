// run_blocking(): the border between blocking callers and tasks.
#pragma once

#include <cassert>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "os/blocked_caller.h"
#include "os/executor.h"

namespace mooncake::os {

namespace detail {

template <typename T>
struct BlockingCall : BlockedCaller {
  std::optional<T> value;
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

template <typename T>
CallRunner run_call(Task<T>* waiting, std::shared_ptr<BlockingCall<T>> call) {
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

// Null when the executor has stopped.
template <typename T>
std::shared_ptr<BlockingCall<T>> begin_call(Executor& executor, Task<T>& task) {
  assert(!executor.on_this_thread());
  auto call = std::make_shared<BlockingCall<T>>();
  const bool posted = executor.post_from(*call, [&task, call] { run_call(&task, call); });
  return posted ? call : nullptr;
}

inline Task<bool> then_true(Task<void> task) {
  co_await task;
  co_return true;
}

}  // namespace detail

// Runs `task` on the executor and blocks this thread until it has ended; nothing when the executor
// has stopped before it could begin. Meanwhile the executor may run on this thread, other work than
// the task included. For the blocking facades at the edge; never on the executor's
// own thread. Deadlines are the task's business: when this returns, the task has ended and touches
// nothing any more.
template <typename T>
std::optional<T> run_blocking(Executor& executor, Task<T> task) {
  const auto call = detail::begin_call(executor, task);
  if (!call) return std::nullopt;
  while (!executor.wait_for(*call, TimePoint::max())) {
  }
  return std::move(call->value);
}
// The same, and while it waits asks `give_up` on this thread each `interval`. Once that has said
// yes, `cancel`, which is meant to hurry the task, runs on the executor each `interval` until it
// has ended.
template <typename T>
std::optional<T> run_blocking(Executor& executor, Task<T> task, std::chrono::milliseconds interval,
                              const std::function<bool()>& give_up,
                              const std::function<void()>& cancel) {
  const auto call = detail::begin_call(executor, task);
  if (!call) return std::nullopt;
  bool given_up = false;
  while (!executor.wait_for(*call, base::system_clock().now() + interval)) {
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
