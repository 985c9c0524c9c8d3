// Task<T>: a lazy coroutine. Client and Master logic is written in Tasks, so that it runs unchanged
// on sockets in production and on one simulated thread in tests.
//
// Rules: a Task starts when it is awaited or handed to a TaskGroup; it runs on its executor's
// thread only; it never throws (an exception that escapes ends the process: it is our mistake).
// Arguments are taken by value, or by reference to what outlives the await. A task that has started
// is destroyed only after its end: what it waits for may hold its handle. No aggregate with a
// destructor may be a temporary in the full expression of a co_await (GCC 12 destroys it twice):
// name it, or give the type a constructor.
#pragma once

#include <cassert>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

namespace mooncake::base {

template <typename T>
class Task;

namespace detail {

// Resumes whoever awaits the task, if that one had to be suspended. A task that ends at once only
// says so, and its caller never stops: g++ turns a symmetric transfer into a jump from -O2 on only,
// so a loop over such tasks would eat the stack in every debug and sanitizer build.
struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> done) const noexcept {
    auto& promise = done.promise();
    promise.ended = true;
    return promise.continuation ? promise.continuation : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> continuation;  // set once the caller is suspended
  bool ended = false;
  bool started = false;
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object() noexcept;
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace detail

template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() { destroy(); }

  bool await_ready() const noexcept { return false; }
  // Runs the task up to its first suspension; false, go on, when it has ended by then.
  bool await_suspend(std::coroutine_handle<> caller) noexcept {
    assert(handle_ && !handle_.done());
    auto& promise = handle_.promise();
    promise.started = true;
    handle_.resume();
    if (promise.ended) return false;
    promise.continuation = caller;
    return true;
  }
  T await_resume() { return handle_.promise().take(); }

 private:
  friend promise_type;
  explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  void destroy() noexcept {
    if (!handle_) return;
    assert(!handle_.promise().started || handle_.done());
    handle_.destroy();
  }

  std::coroutine_handle<promise_type> handle_;
};

namespace detail {
template <typename T>
Task<T> Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace detail

// Owns tasks that run beside their starter; the owner joins them before it goes. One executor
// thread.
class TaskGroup {
 public:
  TaskGroup() = default;
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  // All tasks must have ended: `co_await join()` first.
  ~TaskGroup() { assert(running_ == 0); }

  // Runs the task on the spot until its first suspension.
  void start(Task<void> task) {
    ++running_;
    run(this, std::move(task));
  }
  std::size_t running() const { return running_; }

  // For work that is not a Task<void> but must end before the owner goes. leave() may end the
  // owner: post it to the executor as the last thing.
  void enter() { ++running_; }
  void leave() {
    if (--running_ == 0 && joiner_) std::exchange(joiner_, nullptr).resume();
  }

  // Returns when no task runs any more. One joiner at a time.
  auto join() {
    struct Joiner {
      TaskGroup& group;
      bool await_ready() const noexcept { return group.running_ == 0; }
      void await_suspend(std::coroutine_handle<> caller) const noexcept { group.joiner_ = caller; }
      void await_resume() const noexcept {}
    };
    return Joiner{*this};
  }

 private:
  struct Runner {
    struct promise_type {
      Runner get_return_object() const noexcept { return {}; }
      std::suspend_never initial_suspend() const noexcept { return {}; }
      std::suspend_never final_suspend() const noexcept { return {}; }
      void return_void() const noexcept {}
      [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
    };
  };
  // A free-standing frame: it may outlive the group by the few instructions after the last task.
  static Runner run(TaskGroup* group, Task<void> task) {
    co_await task;
    { Task<void> ended = std::move(task); }
    group->leave();
  }

  std::size_t running_ = 0;
  std::coroutine_handle<> joiner_;
};

}  // namespace mooncake::base
