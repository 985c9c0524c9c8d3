#include "net/reactor.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

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
constexpr std::size_t kMaxThreadName = 15;

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

Reactor::Reactor() : pid_(::getpid()), loop_(std::make_unique<Loop>()) {}

Result<std::unique_ptr<Reactor>> Reactor::start(const std::string& name) {
  try {
    std::unique_ptr<Reactor> reactor(new Reactor);
    SignalsBlocked blocked;
    reactor->thread_ = std::thread([raw = reactor.get(), name] { raw->run(name); });
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
    });
    stopped_ = true;
    wake = !std::exchange(turn_coming_, true);
  }
  if (wake) schedule_turn();
  thread_.join();
}

void Reactor::run(const std::string& name) {
  thread_id_ = std::this_thread::get_id();
  pthread_setname_np(pthread_self(), name.substr(0, kMaxThreadName).c_str());
  loop_->io.run();
  thread_id_ = std::thread::id();
}

bool Reactor::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    posted_.push_back(std::move(work));
    if (std::exchange(turn_coming_, true)) return true;
  }
  schedule_turn();
  return true;
}

void Reactor::schedule_turn() {
  boost::asio::post(loop_->io, [this] { Turn turn(*this); });
}

void Reactor::begin_turn() {
  assert(!in_turn_);
  in_turn_ = true;
  std::lock_guard lock(mutex_);
  turn_coming_ = true;
}

// Work and sends feed each other (a frame that has left wakes its sender), so they alternate.
void Reactor::end_turn() {
  for (int round = 0; round < kMaxRounds; ++round) {
    const bool ran = run_posted();
    if (!run_flushers() && !ran) break;
  }
  in_turn_ = false;
  {
    std::lock_guard lock(mutex_);
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
