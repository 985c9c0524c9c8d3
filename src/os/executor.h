// Executor: the one thread on which a component's logic runs, with its timers.
//
// Production: a socket reactor (src/net). Tests and simulation: SimExecutor (os/sim_executor.h).
#pragma once

#include <cassert>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/task.h"
#include "os/blocked_caller.h"

namespace mooncake::os {

using base::Duration;
using base::Task;
using base::TimePoint;

enum class TimerId : std::uint64_t { kNone = 0 };

class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `work` on the executor's thread, later, in order of posting. Any thread. False when the
  // executor has stopped, and the work is dropped; work accepted before that is run.
  virtual bool post(std::function<void()> work) = 0;

  // The two for run_blocking(), on the caller's thread, one after the other. An executor may run
  // its loop on a thread that waits: then that is its thread for as long, and the caller's work
  // costs no hand-over. post_from() is post() of work that will say caller.finish().
  virtual bool post_from(BlockedCaller& caller, std::function<void()> work) {
    static_cast<void>(caller);
    return post(std::move(work));
  }
  // Until the caller's work has finished (true) or `until`; as often as it takes.
  virtual bool wait_for(BlockedCaller& caller, TimePoint until) { return caller.park(until); }

  // Executor thread only, as all below. The work runs at `when` or soon after.
  virtual TimerId run_at(TimePoint when, std::function<void()> work) = 0;
  // False when the timer has run or never was.
  virtual bool cancel(TimerId timer) = 0;
  virtual bool on_this_thread() const = 0;

  virtual const base::Clock& clock() const = 0;
  TimePoint now() const { return clock().now(); }

  // co_await executor.sleep_until(t): always suspends, even when t has passed.
  auto sleep_until(TimePoint when) {
    struct Sleep {
      Executor& executor;
      TimePoint when;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> caller) const {
        executor.run_at(when, [caller] { caller.resume(); });
      }
      void await_resume() const noexcept {}
    };
    return Sleep{*this, when};
  }
  auto sleep_for(Duration duration) { return sleep_until(now() + duration); }

  // co_await executor.yield(): lets other work of this executor go first.
  auto yield() {
    struct Yield {
      Executor& executor;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> caller) const {
        executor.post([caller] { caller.resume(); });
      }
      void await_resume() const noexcept {}
    };
    return Yield{*this};
  }
};

// A value that one task sets, once, and another awaits. Executor thread only; the waiter is resumed
// from the executor's queue, never from inside set().
template <typename T>
class Completion {
 public:
  explicit Completion(Executor& executor) : executor_(executor) {}
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion() { assert(!waiter_ && !resuming_); }

  // False when it was set before; the first value stays.
  bool set(T value) {
    if (value_) return false;
    value_.emplace(std::move(value));
    if (waiter_) {
      resuming_ = true;
      executor_.post([waiter = std::exchange(waiter_, nullptr)] { waiter.resume(); });
    }
    return true;
  }
  bool is_set() const { return value_.has_value(); }

  bool await_ready() const noexcept { return value_.has_value(); }
  void await_suspend(std::coroutine_handle<> caller) noexcept { waiter_ = caller; }
  T await_resume() {
    resuming_ = false;
    return std::move(*value_);
  }

 private:
  Executor& executor_;
  bool resuming_ = false;  // the waiter's resumption is in the queue
  std::optional<T> value_;
  std::coroutine_handle<> waiter_;
};

}  // namespace mooncake::os
