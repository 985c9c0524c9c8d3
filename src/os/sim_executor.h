// SimExecutor: a whole cluster on one thread and a clock that moves only when nothing else can.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/random.h"
#include "os/executor.h"

namespace mooncake::os {

// Wall time follows the fake clock, from an arbitrary date.
class FakeClock final : public base::Clock {
 public:
  base::TimePoint now() const override { return now_; }
  std::int64_t unix_seconds() const override;
  void advance_to(base::TimePoint when) { now_ = when < now_ ? now_ : when; }

 private:
  base::TimePoint now_{};
};

// Deterministic for a seed. With `shuffle`, work that is ready at the same time runs in an order
// drawn from the seed, so that seeds explore interleavings; without, in order of posting, a timer
// being posted when it becomes due. One thread only, post() included.
class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(std::uint64_t seed, bool shuffle = false);
  // Drops what is still queued without running it.
  ~SimExecutor() override;

  bool post(std::function<void()> work) override;
  TimerId run_at(TimePoint when, std::function<void()> work) override;
  bool cancel(TimerId timer) override;
  bool on_this_thread() const override { return running_; }
  const base::Clock& clock() const override { return clock_; }

  // Runs until nothing is ready, without moving the clock. Returns the number of items run.
  std::size_t run_ready();
  // Runs and moves the clock, until `stop()` holds, nothing is left, or `limit` of fake time is
  // reached. True when `stop()` held.
  bool run_until(const std::function<bool()>& stop, TimePoint limit);
  // Runs everything that happens within `duration` and moves the clock by it.
  void run_for(Duration duration);

  // Runs a task to its end on this executor. The task must end within `limit` of fake time; that it
  // did not is a bug of the test's subject and ends the process with a message.
  void run(Task<void> task, Duration limit = std::chrono::hours(1)) {
    run(then_true(std::move(task)), limit);
  }
  template <typename T>
  T run(Task<T> task, Duration limit = std::chrono::hours(1)) {
    std::optional<T> value;
    base::TaskGroup group;
    post([&] { group.start(store(std::move(task), value)); });
    finish_or_die(run_until([&] { return value.has_value(); }, now() + limit));
    run_ready();
    return std::move(*value);
  }

 private:
  using Work = std::function<void()>;

  template <typename T>
  static Task<void> store(Task<T> task, std::optional<T>& value) {
    value.emplace(co_await task);
  }
  static Task<bool> then_true(Task<void> task) {
    co_await task;
    co_return true;
  }
  static void finish_or_die(bool finished);
  bool step();
  void advance_to(TimePoint when);
  void make_due(TimerId timer, Work work);

  FakeClock clock_;
  base::Random random_;
  const bool shuffle_;
  bool running_ = false;
  std::deque<Work> ready_;
  std::size_t steps_at_this_time_ = 0;
  std::uint64_t next_timer_ = 1;
  // A timer is in `timers_` and `when_` until its time comes, then in `due_` until it runs.
  std::map<std::pair<TimePoint, TimerId>, Work> timers_;
  std::unordered_map<TimerId, TimePoint> when_;
  std::unordered_map<TimerId, Work> due_;
};

// One node's executor inside a SimExecutor: it can be stopped as by SIGSTOP, or die. What it still
// had to do when it is destroyed is dropped. The world outlives it.
class SimHost final : public Executor {
 public:
  explicit SimHost(SimExecutor& world) : world_(world) {}
  ~SimHost() override { *alive_ = false; }

  bool post(std::function<void()> work) override;
  TimerId run_at(TimePoint when, std::function<void()> work) override;
  bool cancel(TimerId timer) override;
  bool on_this_thread() const override { return world_.on_this_thread(); }
  const base::Clock& clock() const override { return world_.clock(); }

  // Nothing of this host runs until thaw(); then everything that has become due runs at once, in
  // the order in which it became due.
  void freeze() { frozen_ = true; }
  void thaw();
  bool frozen() const { return frozen_; }

 private:
  struct Kept {
    TimerId timer = TimerId::kNone;  // kNone: posted work
    std::function<void()> work;
  };
  void run_or_keep(TimerId timer, std::function<void()> work);
  void run_kept();

  SimExecutor& world_;
  bool frozen_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::deque<Kept> kept_;
  std::uint64_t next_timer_ = 1;
  // This host's timers that are still to come -> the world's.
  std::unordered_map<TimerId, TimerId> timers_;
};

}  // namespace mooncake::os
