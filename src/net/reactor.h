// Reactor: the executor of a Runtime. One thread at a time, sockets, timers, and turns: everything
// that one event sets off runs before the next event is asked for, and what it sends leaves at the
// end in one go.
//
// Who runs the loop holds the baton (`driver_`). That is the reactor's own thread, until blocking
// callers (os/run_blocking.h) come one soon after the other: then each of them drives until its own
// work has finished, and pays no hand-over between threads. The own thread stands aside meanwhile,
// and takes the loop back when nobody has driven it for a while (stand_aside()). All that one
// driver leaves to the next is ordered by `mutex_`.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mooncake/result.h"
#include "net/spin.h"
#include "os/executor.h"

namespace mooncake::net {

// Has something that should leave at the end of the turn.
class Flusher {
 public:
  virtual ~Flusher() = default;
  virtual void flush() = 0;
};

// Memory that other processes write to, which is looked at while the loop looks for work. Executor
// thread.
class Poller {
 public:
  virtual ~Poller() = default;
  // Something has come that somebody waits for.
  virtual bool has_input() = 0;
  // Hands it over; in a turn.
  virtual void take_input() = 0;
  // The loop goes to sleep: from here on a descriptor wakes it. False: there is input.
  virtual bool rest() = 0;
};

class Reactor final : public os::Executor {
 public:
  // kSystemCall names what could not be had.
  static Result<std::unique_ptr<Reactor>> start(const std::string& name);
  // Runs what has been posted, then joins the thread. Timers that are not due are dropped. Callers
  // have returned.
  ~Reactor() override;

  bool post(std::function<void()> work) override;
  bool post_from(os::BlockedCaller& caller, std::function<void()> work) override;
  bool wait_for(os::BlockedCaller& caller, base::TimePoint until) override;
  os::TimerId run_at(base::TimePoint when, std::function<void()> work) override;
  bool cancel(os::TimerId timer) override;
  bool on_this_thread() const override { return driver_ == std::this_thread::get_id(); }
  const base::Clock& clock() const override { return base::system_clock(); }

  // Executor thread. Once per turn for each that asks.
  void flush_later(std::shared_ptr<Flusher> flusher);

  // Looks at it until the loop goes to sleep next, or others were seen later and it rests.
  void watch(std::shared_ptr<Poller> poller);
  void unwatch(const Poller& poller);

  // Stands around the body of every handler that Asio calls.
  class Turn {
   public:
    explicit Turn(Reactor& reactor) : reactor_(reactor) { reactor_.begin_turn(); }
    ~Turn() { reactor_.end_turn(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Reactor& reactor_;
  };

  struct Loop;  // what is Asio's
  Loop& loop() { return *loop_; }
  // False in a forked child, which has the objects but not the thread.
  bool in_own_process() const;

 private:
  using TimerKey = std::pair<base::TimePoint, std::uint64_t>;
  using Lock = std::unique_lock<std::mutex>;

  Reactor();
  void run_own(const std::string& name);
  // With mutex_ held, which drive() lets go of while the loop runs.
  void stand_aside(Lock& lock);
  void drive(Lock& lock, os::BlockedCaller* caller, base::TimePoint until);
  void run_loop(Spin& spin);
  bool look();
  bool poll_io();
  bool poll_watched();
  bool rest_watched();
  void pass_on();
  base::Duration take_over_after() const;
  bool is_free() const { return driver_.load() == std::thread::id(); }
  // Executor thread, at the end of a turn, with mutex_ held.
  bool should_leave() const;
  void begin_turn();
  void end_turn();
  bool run_posted();
  bool run_flushers();
  void schedule_turn();
  void arm();
  void run_timers();

  const pid_t pid_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;

  std::mutex mutex_;  // guards all up to the next empty line
  std::vector<std::function<void()>> posted_;
  bool turn_coming_ = false;  // a turn runs or is scheduled, and will see what is posted
  bool stopped_ = false;
  bool ended_ = false;                     // the last work has been run
  std::atomic<std::thread::id> driver_{};  // written with mutex_ held
  os::BlockedCaller* driving_ = nullptr;   // the driver, unless it is the own thread
  bool drive_over_ = false;                // until has come
  bool should_step_aside_ = false;         // asked of the own thread
  bool first_turn_here_ = false;           // the driver begins with a turn that Asio knows not of
  bool own_waits_for_notice_ = false;      // the own thread is aside, without looking up
  base::TimePoint drive_began_{};
  base::TimePoint last_call_{};              // when a blocking caller went away
  std::uint32_t quick_returns_ = 0;          // calls that came at once after the one before
  std::vector<os::BlockedCaller*> waiting_;  // callers that don't drive
  os::BlockedCaller* invited_ = nullptr;     // of these, who was called to drive
  std::condition_variable own_turn_;

  // Of the driver alone.
  bool in_turn_ = false;
  bool leaving_ = false;  // set in its last turn
  Spin caller_spin_, own_spin_;
  base::TimePoint first_turn_{};  // since the driver began to wait
  std::vector<std::function<void()>> running_;
  std::vector<std::shared_ptr<Flusher>> flushers_;
  std::vector<std::shared_ptr<Flusher>> flushing_;
  std::vector<std::shared_ptr<Poller>> watched_;
  unsigned turns_by_memory_ = 0;
  base::TimePoint looked_{};  // at sockets and timers, at the end of a drive
  std::map<TimerKey, std::function<void()>> timers_;
  std::unordered_map<std::uint64_t, base::TimePoint> timer_times_;
  std::uint64_t next_timer_ = 1;
  base::TimePoint armed_for_ = base::TimePoint::max();
};

}  // namespace mooncake::net
