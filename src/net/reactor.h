// Reactor: the executor of a Runtime. One thread, sockets, timers, and turns: everything that one
// event sets off runs before the next event is asked for, and what it sends leaves at the end in
// one go.
#pragma once

#include <sys/types.h>

#include <atomic>
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
#include "os/executor.h"

namespace mooncake::net {

// Has something that should leave at the end of the turn.
class Flusher {
 public:
  virtual ~Flusher() = default;
  virtual void flush() = 0;
};

class Reactor final : public os::Executor {
 public:
  // kSystemCall names what could not be had.
  static Result<std::unique_ptr<Reactor>> start(const std::string& name);
  // Runs what has been posted, then joins the thread. Timers that are not due are dropped.
  ~Reactor() override;

  bool post(std::function<void()> work) override;
  os::TimerId run_at(base::TimePoint when, std::function<void()> work) override;
  bool cancel(os::TimerId timer) override;
  bool on_this_thread() const override { return thread_id_ == std::this_thread::get_id(); }
  const base::Clock& clock() const override { return base::system_clock(); }

  // Executor thread. Once per turn for each that asks.
  void flush_later(std::shared_ptr<Flusher> flusher);

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

  Reactor();
  void run(const std::string& name);
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
  std::atomic<std::thread::id> thread_id_{};

  std::mutex mutex_;  // guards the next three
  std::vector<std::function<void()>> posted_;
  bool turn_coming_ = false;  // a turn runs or is scheduled, and will see what is posted
  bool stopped_ = false;

  // Of the thread alone.
  bool in_turn_ = false;
  std::vector<std::function<void()>> running_;
  std::vector<std::shared_ptr<Flusher>> flushers_;
  std::vector<std::shared_ptr<Flusher>> flushing_;
  std::map<TimerKey, std::function<void()>> timers_;
  std::unordered_map<std::uint64_t, base::TimePoint> timer_times_;
  std::uint64_t next_timer_ = 1;
  base::TimePoint armed_for_ = base::TimePoint::max();
};

}  // namespace mooncake::net
