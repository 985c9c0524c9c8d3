#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "memory/pool.h"

namespace mooncake::memory {

namespace {

// Small enough that a newcomer doesn't wait long for its first bytes.
constexpr std::uint64_t kStep = 8u << 20;

}  // namespace

struct Preparer::State {
  struct Job {
    Pool* pool = nullptr;
    std::uint64_t ready_first = 0;
    std::function<void(std::uint64_t)> progress;
    bool stuck = false;  // no further step: memory has run out, or the pool leaves

    bool done() const { return stuck || pool->prepared() >= pool->size(); }
    bool awaited() const { return !done() && pool->prepared() < ready_first; }
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::list<Job> jobs;       // guarded by mutex, as all below; in order of arrival
  Job* under_way = nullptr;  // touched without the mutex by the thread
  bool stopping = false;
  std::thread thread;

  Job* next() {
    const auto awaited =
        std::find_if(jobs.begin(), jobs.end(), [](auto& j) { return j.awaited(); });
    if (awaited != jobs.end()) return &*awaited;
    const auto open = std::find_if(jobs.begin(), jobs.end(), [](auto& j) { return !j.done(); });
    return open == jobs.end() ? nullptr : &*open;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || next() != nullptr; });
      if (stopping) return;
      Job& job = *next();
      under_way = &job;
      lock.unlock();
      const std::uint64_t before = job.pool->prepared();
      const std::uint64_t after = job.pool->prepare(kStep);
      if (job.progress && after != before) job.progress(after);
      lock.lock();
      if (after == before) job.stuck = true;
      under_way = nullptr;
      changed.notify_all();
    }
  }
};

Preparer::Preparer() : state_(std::make_unique<State>()) {
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
  std::unique_lock lock(state_->mutex);
  auto& job = state_->jobs.emplace_back();
  job.pool = &pool;
  job.ready_first = std::min(ready_first, pool.size());
  job.progress = std::move(progress);
  state_->changed.notify_all();
  state_->changed.wait(lock, [&] { return !job.awaited() || state_->stopping; });
}

void Preparer::remove(Pool& pool) {
  std::unique_lock lock(state_->mutex);
  const auto job = std::find_if(state_->jobs.begin(), state_->jobs.end(),
                                [&](const auto& j) { return j.pool == &pool; });
  if (job == state_->jobs.end()) return;
  job->stuck = true;
  state_->changed.wait(lock, [&] { return state_->under_way != &*job; });
  state_->jobs.erase(job);
}

}  // namespace mooncake::memory
