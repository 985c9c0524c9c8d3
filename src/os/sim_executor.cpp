#include "os/sim_executor.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>

namespace mooncake::os {

namespace {

// 2023-11-14 22:13:20 UTC.
constexpr std::int64_t kFakeEpoch = 1'700'000'000;

// More than this without the clock moving is a loop that waits for nothing.
constexpr std::size_t kMaxStepsAtOneTime = 50'000'000;

[[noreturn]] void die(const char* message) {
  std::fprintf(stderr, "SimExecutor: %s\n", message);
  std::abort();
}

}  // namespace

std::int64_t FakeClock::unix_seconds() const {
  return kFakeEpoch + std::chrono::floor<std::chrono::seconds>(now_.time_since_epoch()).count();
}

SimExecutor::SimExecutor(std::uint64_t seed, bool shuffle) : random_(seed), shuffle_(shuffle) {}

SimExecutor::~SimExecutor() = default;

bool SimExecutor::post(std::function<void()> work) {
  ready_.push_back(std::move(work));
  return true;
}

TimerId SimExecutor::run_at(TimePoint when, std::function<void()> work) {
  const auto timer = static_cast<TimerId>(next_timer_++);
  if (when <= clock_.now()) {
    make_due(timer, std::move(work));
  } else {
    when_.emplace(timer, when);
    timers_.emplace(std::pair(when, timer), std::move(work));
  }
  return timer;
}

bool SimExecutor::cancel(TimerId timer) {
  if (due_.erase(timer) != 0) return true;
  const auto found = when_.find(timer);
  if (found == when_.end()) return false;
  timers_.erase({found->second, timer});
  when_.erase(found);
  return true;
}

// Waits its turn among the ready work, and can be cancelled until then.
void SimExecutor::make_due(TimerId timer, Work work) {
  due_.emplace(timer, std::move(work));
  ready_.push_back([this, timer] {
    const auto found = due_.find(timer);
    if (found == due_.end()) return;
    const Work due = std::move(found->second);
    due_.erase(found);
    due();
  });
}

void SimExecutor::advance_to(TimePoint when) {
  clock_.advance_to(when);
  steps_at_this_time_ = 0;
  while (!timers_.empty() && timers_.begin()->first.first <= clock_.now()) {
    auto node = timers_.extract(timers_.begin());
    when_.erase(node.key().second);
    make_due(node.key().second, std::move(node.mapped()));
  }
}

bool SimExecutor::step() {
  assert(!running_);
  if (ready_.empty()) return false;
  if (++steps_at_this_time_ > kMaxStepsAtOneTime) die("work posts work, and time stands still");
  if (shuffle_) std::swap(ready_.front(), ready_[random_.below(ready_.size())]);
  const Work work = std::move(ready_.front());
  ready_.pop_front();
  running_ = true;
  work();
  running_ = false;
  return true;
}

std::size_t SimExecutor::run_ready() {
  std::size_t count = 0;
  while (step())
    ++count;
  return count;
}

bool SimExecutor::run_until(const std::function<bool()>& stop, TimePoint limit) {
  for (;;) {
    if (stop()) return true;
    if (step()) continue;
    if (timers_.empty()) return false;
    const TimePoint next = timers_.begin()->first.first;
    if (next > limit) {
      advance_to(std::max(limit, clock_.now()));
      return false;
    }
    advance_to(next);
  }
}

void SimExecutor::run_for(Duration duration) {
  const TimePoint end = now() + duration;
  run_until([] { return false; }, end);
  advance_to(end);
}

void SimExecutor::finish_or_die(bool finished) {
  if (!finished) die("the task didn't end within its limit, or waits for what can't happen");
}

bool SimHost::post(std::function<void()> work) {
  return world_.post([this, alive = alive_, work = std::move(work)]() mutable {
    if (*alive) run_or_keep(TimerId::kNone, std::move(work));
  });
}

TimerId SimHost::run_at(TimePoint when, std::function<void()> work) {
  const auto timer = static_cast<TimerId>(next_timer_++);
  timers_[timer] = world_.run_at(when, [this, alive = alive_, timer, work = std::move(work)] {
    if (!*alive) return;
    timers_.erase(timer);
    run_or_keep(timer, work);
  });
  return timer;
}

bool SimHost::cancel(TimerId timer) {
  if (const auto found = timers_.find(timer); found != timers_.end()) {
    const bool cancelled = world_.cancel(found->second);
    timers_.erase(found);
    return cancelled;
  }
  if (timer == TimerId::kNone) return false;
  // It became due while this host was frozen, and hasn't run yet.
  return std::erase_if(kept_, [timer](const Kept& kept) { return kept.timer == timer; }) != 0;
}

void SimHost::run_or_keep(TimerId timer, std::function<void()> work) {
  if (frozen_) {
    kept_.push_back({timer, std::move(work)});
  } else {
    work();
  }
}

void SimHost::thaw() {
  frozen_ = false;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    world_.post([this, alive = alive_] {
      if (*alive) run_kept();
    });
  }
}

void SimHost::run_kept() {
  if (frozen_ || kept_.empty()) return;
  const std::function<void()> work = std::move(kept_.front().work);
  kept_.pop_front();
  work();
}

}  // namespace mooncake::os
