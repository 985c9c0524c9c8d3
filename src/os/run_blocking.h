// run_blocking(): the border between blocking callers and tasks.
#pragma once

#include <atomic>
#include <cassert>
#include <memory>
#include <optional>

#include "os/executor.h"

namespace mooncake::os {

namespace detail {

// Shared, since the waiter may be gone before notify_one() has returned.
template <typename T>
struct BlockingCall {
  std::optional<T> value;
  std::atomic<bool> done{false};
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
  call->done.store(true, std::memory_order_release);
  call->done.notify_one();
}

inline Task<bool> then_true(Task<void> task) {
  co_await task;
  co_return true;
}

}  // namespace detail

// Runs `task` on the executor and blocks this thread until it has ended; nothing when the executor has
// stopped before it could begin. For the blocking facades at the edge; never on the executor's own
// thread. Deadlines are the task's business: when this returns, the task has ended and touches nothing
// any more.
template <typename T>
std::optional<T> run_blocking(Executor& executor, Task<T> task) {
  assert(!executor.on_this_thread());
  auto call = std::make_shared<detail::BlockingCall<T>>();
  if (!executor.post([&task, call] { detail::run_call<T>(&task, call); })) return std::nullopt;
  call->done.wait(false, std::memory_order_acquire);
  return std::move(call->value);
}
inline bool run_blocking(Executor& executor, Task<void> task) {
  return run_blocking(executor, detail::then_true(std::move(task))).has_value();
}

}  // namespace mooncake::os
