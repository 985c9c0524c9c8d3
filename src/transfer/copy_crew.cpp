#include "transfer/copy_crew.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <system_error>
#include <thread>

#include "os/limits.h"

namespace mooncake::transfer {

namespace {

using Clock = std::chrono::steady_clock;

// How long a helper looks for the next call, and a caller for the end of his helper's share, before
// they sleep.
constexpr std::chrono::microseconds kSpin(20);
constexpr unsigned kMostByQuota = 4;
constexpr double kWorthwhile = 0.9;      // of the time alone: a core has other uses, too
constexpr double kWeight = 0.2;          // of a new measurement
constexpr std::uint32_t kTryOther = 32;  // of so many calls one goes the way that was slower

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// One thread. Of one caller at a time, who has it from lend() to take_back().
class CopyCrew::Helper {
 public:
  Helper() : thread_([this] { run(); }) {
    ::pthread_setname_np(thread_.native_handle(), "mc-copy");
  }
  ~Helper() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  bool lent = false;  // guarded by the crew's mutex

  void offer(Work& work) {
    done_.store(false, std::memory_order_relaxed);
    offered_.store(&work, std::memory_order_seq_cst);
    if (!parked_.load(std::memory_order_seq_cst)) return;
    { std::lock_guard lock(mutex_); }
    wake_.notify_one();
  }

  // Returns when the helper has signed off, with the bytes that it has copied, or will not begin.
  std::uint64_t finish(Work& work) {
    Work* expected = &work;
    if (offered_.compare_exchange_strong(expected, nullptr)) return 0;
    const auto until = Clock::now() + kSpin;
    while (!done_.load(std::memory_order_acquire)) {
      if (Clock::now() >= until) done_.wait(false, std::memory_order_acquire);
      relax();
    }
    return copied_;
  }

 private:
  void run() {
    while (Work* const work = next()) {
      copied_ = work->take_part();
      done_.store(true, std::memory_order_release);
      done_.notify_one();
    }
  }
  // Null at the end.
  Work* next() {
    const auto until = Clock::now() + kSpin;
    do {
      if (offered_.load(std::memory_order_relaxed) != nullptr) break;
      relax();
    } while (Clock::now() < until);
    if (Work* const work = offered_.exchange(nullptr)) return work;
    std::unique_lock lock(mutex_);
    parked_.store(true, std::memory_order_seq_cst);
    Work* work = nullptr;
    wake_.wait(lock, [&] { return (work = offered_.exchange(nullptr)) != nullptr || stopping_; });
    parked_.store(false, std::memory_order_relaxed);
    return work;
  }

  std::atomic<Work*> offered_{nullptr};
  std::atomic<bool> done_{false};
  std::atomic<bool> parked_{false};
  std::uint64_t copied_ = 0;  // the helper's until done_
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex
  std::thread thread_;     // last: it uses all of the above
};

CopyCrew::CopyCrew(unsigned helpers) : most_(helpers) {}
CopyCrew::~CopyCrew() = default;

unsigned CopyCrew::helpers_by_quota() {
  return std::min(os::usable_processors() - 1, kMostByQuota);
}

unsigned CopyCrew::threads() const {
  std::lock_guard lock(mutex_);
  return static_cast<unsigned>(helpers_.size());
}

CopyCrew::Experience& CopyCrew::experience(std::uint64_t bytes, unsigned kind) {
  const auto doublings = static_cast<unsigned>(std::bit_width(bytes / kSharedFrom)) - 1;
  return experience_[kind * kSizes + std::min(doublings, kSizes - 1)];
}

// Null: the caller is to do it alone.
CopyCrew::Helper* CopyCrew::lend(std::uint64_t bytes, unsigned kind) {
  std::lock_guard lock(mutex_);
  Experience& known = experience(bytes, kind);
  const bool try_other = ++known.calls % kTryOther == 0;
  if (known.alone == 0) return nullptr;
  const bool faster = known.together == 0 || known.together < kWorthwhile * known.alone;
  if (faster == try_other) return nullptr;
  const auto idle = std::find_if(helpers_.begin(), helpers_.end(),
                                 [](const auto& helper) { return !helper->lent; });
  if (idle != helpers_.end()) {
    (*idle)->lent = true;
    return idle->get();
  }
  if (helpers_.size() >= most_ || none_left_) return nullptr;
  try {
    helpers_.push_back(std::make_unique<Helper>());
  } catch (const std::system_error&) {
    none_left_ = true;
    return nullptr;
  }
  helpers_.back()->lent = true;
  return helpers_.back().get();
}

void CopyCrew::run(Work& work, std::uint64_t bytes, unsigned kind) {
  if (!may_help(bytes)) {
    work.do_alone();
    return;
  }
  Helper* const helper = lend(bytes, kind);
  const auto begun = Clock::now();
  if (helper != nullptr) helper->offer(work);
  std::uint64_t copied = helper != nullptr ? work.take_part() : work.do_alone();
  if (helper != nullptr) {
    const std::uint64_t by_helper = helper->finish(work);
    if (by_helper != 0) helped_.fetch_add(1, std::memory_order_relaxed);
    copied += by_helper;
  }
  const std::chrono::duration<double, std::nano> taken = Clock::now() - begun;
  std::lock_guard lock(mutex_);
  if (helper != nullptr) helper->lent = false;
  if (copied == 0) return;
  Experience& known = experience(bytes, kind);
  double& average = helper != nullptr ? known.together : known.alone;
  const double measured = taken.count() / static_cast<double>(copied);
  average = average == 0 ? measured : average + kWeight * (measured - average);
}

}  // namespace mooncake::transfer
