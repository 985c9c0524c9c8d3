#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "memory/pool.h"

namespace mooncake::memory {

namespace {

using Clock = std::chrono::steady_clock;

// Small enough that a newcomer doesn't wait long for its first bytes; of what is waited for, one
// huge page, so that it is seen in time that there is no time for more.
constexpr std::uint64_t kStep = 8u << 20;
constexpr std::uint64_t kAwaitedStep = 2u << 20;

}  // namespace

struct Preparer::State {
  struct Job {
    Pool* pool = nullptr;
    std::uint64_t ready_first = 0;
    std::function<void(std::uint64_t)> progress;
    bool waited_for = false;  // by a caller in add()
    Clock::time_point hurry_from;
    bool stuck = false;     // no further step: memory has run out, or the pool leaves
    bool improved = false;  // nothing is left to do
    bool leaving = false;   // remove() waits for it

    bool done() const { return stuck || pool->prepared() >= pool->size(); }
    // Nothing and nobody needs it any more.
    bool over() const { return done() && (stuck || improved) && !waited_for && !leaving; }
    bool awaited() const { return !done() && pool->prepared() < ready_first; }
  };

  Patience patience;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::list<Job> jobs;       // guarded by mutex, as all below; in order of arrival
  Job* under_way = nullptr;  // touched without the mutex by the thread
  Totals totals;
  bool stopping = false;
  std::thread thread;

  Job* next() {
    const auto first = [this](auto condition) {
      const auto it = std::find_if(jobs.begin(), jobs.end(), condition);
      return it == jobs.end() ? nullptr : &*it;
    };
    if (Job* const job = first([](const Job& each) { return each.awaited(); })) return job;
    if (Job* const job = first([](const Job& each) { return !each.done(); })) return job;
    return first([](const Job& each) { return !each.stuck && !each.improved; });
  }

  // Of the job under way, without the mutex.
  void step(Job& job, std::uint64_t bytes, Effort effort) {
    const std::uint64_t before = job.pool->prepared();
    const auto begun = Clock::now();
    const std::uint64_t after = job.pool->prepare(bytes, effort);
    const auto time = Clock::now() - begun;
    if (job.progress && after != before) job.progress(after);
    std::lock_guard lock(mutex);
    totals.bytes += after - before;
    totals.time += time;
    if (after == before) job.stuck = true;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || next() != nullptr; });
      if (stopping) return;
      Job& job = *next();
      under_way = &job;
      const bool in_haste = job.waited_for && Clock::now() >= job.hurry_from;
      const std::uint64_t bytes = job.waited_for ? kAwaitedStep : kStep;
      const bool whole = job.done();
      bool improves = false;
      lock.unlock();
      if (whole) {
        improves = job.pool->improve();
      } else {
        step(job, bytes, in_haste ? Effort::kQuick : Effort::kHugePages);
      }
      lock.lock();
      job.improved = whole && !improves;
      under_way = nullptr;
      if (job.over()) {
        jobs.remove_if([&job](const Job& each) { return &each == &job; });
      }
      changed.notify_all();
    }
  }
};

Preparer::Preparer() : Preparer(Patience{}) {}

Preparer::Preparer(Patience patience) : state_(std::make_unique<State>()) {
  state_->patience = patience;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  pthread_setname_np(state_->thread.native_handle(), "mc-prepare");
}

Preparer::~Preparer() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void Preparer::add(Pool& pool, std::uint64_t ready_first,
                   std::function<void(std::uint64_t)> progress) {
  const auto now = Clock::now();
  std::unique_lock lock(state_->mutex);
  const auto at = state_->jobs.emplace(state_->jobs.end());
  State::Job& job = *at;
  job.pool = &pool;
  job.ready_first = std::min(ready_first, pool.size());
  job.progress = std::move(progress);
  job.waited_for = job.awaited();
  job.hurry_from = now + state_->patience.hurry;
  state_->changed.notify_all();
  const bool ready = state_->changed.wait_until(lock, now + state_->patience.longest,
                                                [&] { return !job.awaited() || state_->stopping; });
  job.waited_for = false;
  if (job.over() && state_->under_way != &job) state_->jobs.erase(at);
  if (!ready) ++state_->totals.late;
}

void Preparer::remove(Pool& pool) {
  std::unique_lock lock(state_->mutex);
  const auto job = std::find_if(state_->jobs.begin(), state_->jobs.end(),
                                [&](const auto& j) { return j.pool == &pool; });
  if (job == state_->jobs.end()) return;
  job->stuck = job->leaving = true;
  state_->changed.wait(lock, [&] { return state_->under_way != &*job; });
  state_->jobs.erase(job);
}

Preparer::Totals Preparer::totals() const {
  std::lock_guard lock(state_->mutex);
  return state_->totals;
}

}  // namespace mooncake::memory
