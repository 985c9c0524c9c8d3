// SimExecutor: a whole cluster on one thread and a clock that moves only when nothing else can.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

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

// Deterministic for a seed. Work that is ready at the same time runs in an order drawn from the seed,
// so that seeds explore interleavings; work of one post() keeps its order only with `shuffle` off.
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
  template <typename T>
  static Task<void> store(Task<T> task, std::optional<T>& value) {
    value.emplace(co_await task);
  }
  static void finish_or_die(bool finished);
  bool step();

  FakeClock clock_;
  base::Random random_;
  const bool shuffle_;
  bool running_ = false;
  std::vector<std::function<void()>> ready_;
  std::size_t ready_head_ = 0;
  std::multimap<TimePoint, std::pair<TimerId, std::function<void()>>> timers_;
  std::uint64_t next_timer_ = 1;
};

// One node's executor inside a SimExecutor: it can be stopped as by SIGSTOP, or die.
class SimHost final : public Executor {
 public:
  explicit SimHost(SimExecutor& world) : world_(world) {}

  bool post(std::function<void()> work) override;
  TimerId run_at(TimePoint when, std::function<void()> work) override;
  bool cancel(TimerId timer) override;
  bool on_this_thread() const override { return world_.on_this_thread(); }
  const base::Clock& clock() const override { return world_.clock(); }

  // Nothing of this host runs until thaw(); then everything that has become due runs at once.
  void freeze() { frozen_ = true; }
  void thaw();
  bool frozen() const { return frozen_; }

 private:
  void run_or_keep(std::function<void()> work);

  SimExecutor& world_;
  bool frozen_ = false;
  std::vector<std::function<void()>> kept_;
};

}  // namespace mooncake::os
