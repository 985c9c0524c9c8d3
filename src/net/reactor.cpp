#include "net/reactor.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cassert>
#include <exception>
#include <system_error>

#include "net/asio_access.h"

namespace mooncake::net {
namespace {

// Rounds of posted work in one turn, before sockets and timers are looked at again.
constexpr int kMaxRounds = 8;
// How soon the next caller must come for it to be worth standing aside. Also how long peers and
// timers may wait for the own thread after a caller has left the loop,
constexpr base::Duration kTakeOver = std::chrono::microseconds(200);
// unless callers have come in quick succession: each look costs a wake-up, while they are fast.
constexpr base::Duration kTakeOverFromQuick = std::chrono::milliseconds(2);
constexpr base::Duration kQuickReturn = std::chrono::microseconds(50);
constexpr std::uint32_t kQuickReturns = 16;
// After a drive of this length the own thread is told of its end.
constexpr base::Duration kLongDrive = std::chrono::milliseconds(5);
// As long as a peer takes that has to wake up another one first.
constexpr base::Duration kLongestSpin = std::chrono::microseconds(200);
constexpr std::size_t kMaxThreadName = 15;
constexpr int kLooksAtMemory = 16;
constexpr std::size_t kMaxWatched = 64;
// Work that goes on and on lets sockets, timers and watched memory have their turn after this time.
constexpr base::Duration kLongestUnlooked = std::chrono::milliseconds(1);

base::Duration longest_spin() {
  return std::thread::hardware_concurrency() > 1 ? kLongestSpin : base::Duration::zero();
}

// Signals that a host program handles go to its own threads, never to this one.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t set;
    sigemptyset(&set);
    for (int signal :
         {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE}) {
      sigaddset(&set, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct Reactor::Loop {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  boost::asio::steady_timer timer{io};
};

boost::asio::io_context* io_context_of(os::Executor& executor) {
  auto* reactor = dynamic_cast<Reactor*>(&executor);
  return reactor ? &reactor->loop().io : nullptr;
}

Reactor::Reactor()
    : pid_(::getpid()),
      loop_(std::make_unique<Loop>()),
      caller_spin_(longest_spin()),
      own_spin_(longest_spin()) {}

Result<std::unique_ptr<Reactor>> Reactor::start(const std::string& name) {
  try {
    std::unique_ptr<Reactor> reactor(new Reactor);
    SignalsBlocked blocked;
    reactor->thread_ = std::thread([raw = reactor.get(), name] { raw->run_own(name); });
    return reactor;
  } catch (const std::exception& e) {
    return fail(Code::kSystemCall, "reactor '" + name + "': " + e.what());
  }
}

bool Reactor::in_own_process() const { return ::getpid() == pid_; }

Reactor::~Reactor() {
  assert(in_own_process() && !on_this_thread());
  if (!thread_.joinable()) return;
  bool wake;
  {
    std::lock_guard lock(mutex_);
    posted_.push_back([this] {
      loop_->work.reset();
      loop_->io.stop();
      std::lock_guard ending(mutex_);
      ended_ = true;
    });
    stopped_ = true;
    wake = !std::exchange(turn_coming_, true);
    own_turn_.notify_one();
  }
  if (wake) schedule_turn();
  thread_.join();
}

// The baton.

void Reactor::run_own(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, kMaxThreadName).c_str());
  std::unique_lock lock(mutex_);
  while (!ended_) {
    stand_aside(lock);
    drive(lock, nullptr, base::TimePoint::max());
    pass_on();
  }
}

base::Duration Reactor::take_over_after() const {
  return quick_returns_ < kQuickReturns ? kTakeOver : kTakeOverFromQuick;
}

// Until the loop is free and no caller has come for a while, or there is work that nobody will do.
// Looks up from time to time, so that callers who leave have nobody to wake, but not during a drive
// that takes long.
void Reactor::stand_aside(Lock& lock) {
  for (;;) {
    if (is_free()) {
      if (stopped_ || (turn_coming_ && !invited_)) return;
      const base::Duration left = last_call_ + take_over_after() - now();
      if (left <= base::Duration::zero()) return;
      own_turn_.wait_for(lock, left);
    } else if (now() - drive_began_ < kLongDrive) {
      own_turn_.wait_for(lock, take_over_after());
    } else {
      own_waits_for_notice_ = true;
      own_turn_.wait(lock);
      own_waits_for_notice_ = false;
    }
  }
}

void Reactor::drive(Lock& lock, os::BlockedCaller* caller, base::TimePoint until) {
  driver_ = std::this_thread::get_id();
  driving_ = caller;
  drive_over_ = should_step_aside_ = false;
  drive_began_ = now();
  const bool begins_with_turn = std::exchange(first_turn_here_, false);
  leaving_ = false;
  lock.unlock();
  os::TimerId timer = os::TimerId::kNone;
  if (until != base::TimePoint::max()) {
    timer = run_at(until, [this] {
      std::lock_guard over(mutex_);
      drive_over_ = true;
    });
  }
  if (begins_with_turn) Turn turn(*this);
  run_loop(caller ? caller_spin_ : own_spin_);
  // Callers whose work is over with its first turn come one after the other, and none would look.
  if (!loop_->io.stopped() && now() - looked_ >= kLongestUnlooked) {
    poll_watched();
    poll_io();
    looked_ = now();
  }
  if (timer != os::TimerId::kNone) cancel(timer);
  lock.lock();
  driving_ = nullptr;
  driver_ = std::thread::id();
}

// Looks for work for a moment before it sleeps, if work has come soon of late.
void Reactor::run_loop(Spin& spin) {
  boost::asio::io_context& io = loop_->io;
  while (!leaving_ && !io.stopped()) {
    const base::TimePoint began = now();
    const base::Duration allowance = spin.allowance();
    first_turn_ = base::TimePoint::max();
    if (allowance > base::Duration::zero()) {
      while (!look() && now() - began < allowance)
        spin.make_way();
    }
    if (first_turn_ == base::TimePoint::max()) {
      if (rest_watched()) {
        io.run_one();
      } else {
        poll_watched();
      }
    }
    if (first_turn_ != base::TimePoint::max()) spin.waited(first_turn_ - began);
  }
}

// A look at memory is much cheaper than one at sockets, which must have their turn all the same.
bool Reactor::look() {
  for (int i = 0; i < kLooksAtMemory && !watched_.empty(); ++i) {
    if (!poll_watched()) {
      relax_core();
      continue;
    }
    if (++turns_by_memory_ % kLooksAtMemory == 0) poll_io();
    return true;
  }
  return poll_io();
}

// What is ready, but not all that it sets off: a task that yields again and again is always ready.
// Also by a driver that is about to leave, since nobody has to be woken for what it does.
bool Reactor::poll_io() {
  if (loop_->io.poll_one() == 0) return false;
  const base::TimePoint began = now();
  while (now() - began < kLongestUnlooked && loop_->io.poll_one() > 0) {
  }
  return true;
}

bool Reactor::poll_watched() {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (!watched_[i]->has_input()) continue;
    // The next one is looked at first next time.
    std::rotate(watched_.begin(), watched_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                watched_.end());
    const std::shared_ptr<Poller> poller = watched_.back();
    Turn turn(*this);
    poller->take_input();
    return true;
  }
  return false;
}

bool Reactor::rest_watched() {
  while (!watched_.empty()) {
    if (!watched_.back()->rest()) return false;
    watched_.pop_back();
  }
  return true;
}

void Reactor::watch(std::shared_ptr<Poller> poller) {
  if (std::find(watched_.begin(), watched_.end(), poller) != watched_.end()) return;
  if (watched_.size() >= kMaxWatched && watched_.front()->rest()) watched_.erase(watched_.begin());
  watched_.push_back(std::move(poller));
}

void Reactor::unwatch(const Poller& poller) {
  std::erase_if(watched_, [&](const auto& each) { return each.get() == &poller; });
}

// After a drive: somebody must come at once if somebody waits.
void Reactor::pass_on() {
  if (!stopped_ && !invited_) {
    for (os::BlockedCaller* caller : waiting_) {
      if (caller->finished()) continue;
      invited_ = caller;
      return caller->call();
    }
  }
  if (turn_coming_ || stopped_ || own_waits_for_notice_) own_turn_.notify_one();
}

bool Reactor::should_leave() const {
  if (driving_) return drive_over_ || stopped_ || driving_->finished();
  if (!should_step_aside_ || stopped_) return false;
  // A caller has what it came for, and will come again.
  return waiting_.empty() || std::any_of(waiting_.begin(), waiting_.end(),
                                         [](const auto* caller) { return caller->finished(); });
}

bool Reactor::post_from(os::BlockedCaller& caller, std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    const base::TimePoint called = now();
    quick_returns_ = called - last_call_ < kQuickReturn ? quick_returns_ + 1 : 0;
    if (is_free()) {
      // Taken before the work is posted, so that nobody is woken for it.
      driver_ = std::this_thread::get_id();
      driving_ = &caller;
      drive_began_ = called;
      first_turn_here_ = !turn_coming_;
    } else {
      waiting_.push_back(&caller);
      if (!driving_ && called - last_call_ < kTakeOver) should_step_aside_ = true;
    }
    posted_.push_back(std::move(work));
    if (std::exchange(turn_coming_, true) || first_turn_here_) return true;
  }
  schedule_turn();
  return true;
}

bool Reactor::wait_for(os::BlockedCaller& caller, base::TimePoint until) {
  std::unique_lock lock(mutex_);
  bool invited = false;
  while (driving_ == &caller || (!caller.finished() && now() < until)) {
    if (driving_ == &caller || (is_free() && !stopped_)) {
      std::erase(waiting_, &caller);
      drive(lock, &caller, until);
      pass_on();
      invited = false;
      continue;
    }
    if (std::find(waiting_.begin(), waiting_.end(), &caller) == waiting_.end()) {
      waiting_.push_back(&caller);
    }
    lock.unlock();
    caller.park(until);
    lock.lock();
    invited = invited_ == &caller;
    if (invited) invited_ = nullptr;
  }
  std::erase(waiting_, &caller);
  last_call_ = now();
  // Called to drive, but not in need of it any more: then another.
  if (invited && is_free()) pass_on();
  return caller.finished();
}

bool Reactor::post(std::function<void()> work) {
  bool nobody_drives;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    posted_.push_back(std::move(work));
    if (std::exchange(turn_coming_, true)) return true;
    nobody_drives = is_free();
  }
  schedule_turn();
  if (nobody_drives) own_turn_.notify_one();
  return true;
}

void Reactor::schedule_turn() {
  boost::asio::post(loop_->io, [this] { Turn turn(*this); });
}

void Reactor::begin_turn() {
  assert(!in_turn_);
  in_turn_ = true;
  if (first_turn_ == base::TimePoint::max()) first_turn_ = now();
  std::lock_guard lock(mutex_);
  turn_coming_ = true;
}

// Work and sends feed each other (a frame that has left wakes its sender), so they alternate.
void Reactor::end_turn() {
  base::TimePoint began;
  for (int round = 0; round < kMaxRounds; ++round) {
    const bool ran = run_posted();
    if (!run_flushers() && !ran) break;
    if (round == 0) {
      began = now();
    } else if (now() - began >= kLongestUnlooked) {
      break;
    }
  }
  in_turn_ = false;
  {
    std::lock_guard lock(mutex_);
    leaving_ |= should_leave();
    turn_coming_ = !posted_.empty() || !flushers_.empty();
    if (!turn_coming_) return;
  }
  schedule_turn();
}

bool Reactor::run_posted() {
  {
    std::lock_guard lock(mutex_);
    running_.swap(posted_);
  }
  if (running_.empty()) return false;
  for (std::function<void()>& work : running_) {
    work();
    work = nullptr;  // what it holds goes now, in order
  }
  running_.clear();
  return true;
}

bool Reactor::run_flushers() {
  flushing_.swap(flushers_);
  if (flushing_.empty()) return false;
  for (const std::shared_ptr<Flusher>& flusher : flushing_)
    flusher->flush();
  flushing_.clear();
  return true;
}

void Reactor::flush_later(std::shared_ptr<Flusher> flusher) {
  flushers_.push_back(std::move(flusher));
  if (!in_turn_) post([] {});
}

os::TimerId Reactor::run_at(base::TimePoint when, std::function<void()> work) {
  const std::uint64_t id = next_timer_++;
  timers_.emplace(TimerKey(when, id), std::move(work));
  timer_times_.emplace(id, when);
  arm();
  return static_cast<os::TimerId>(id);
}

bool Reactor::cancel(os::TimerId timer) {
  auto found = timer_times_.find(static_cast<std::uint64_t>(timer));
  if (found == timer_times_.end()) return false;
  timers_.erase(TimerKey(found->second, found->first));
  timer_times_.erase(found);
  return true;
}

// The kernel's timer is moved only to an earlier time: a cancelled one costs a wake-up at most
// once, instead of a system call for each request with a deadline.
void Reactor::arm() {
  if (timers_.empty()) return;
  const base::TimePoint first = timers_.begin()->first.first;
  if (first >= armed_for_) return;
  armed_for_ = first;
  loop_->timer.expires_after(std::max(first - now(), base::Duration::zero()));
  loop_->timer.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    Turn turn(*this);
    armed_for_ = base::TimePoint::max();
    run_timers();
    arm();
  });
}

// Timers made by the work that runs here wait for the next time, even if they are due.
void Reactor::run_timers() {
  const base::TimePoint until = now();
  const std::uint64_t limit = next_timer_;
  while (!timers_.empty()) {
    auto first = timers_.begin();
    if (first->first.first > until || first->first.second >= limit) break;
    std::function<void()> work = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    work();
  }
}

}  // namespace mooncake::net
