// PatientCopies: copies by the kernel out of and into pages that are not there, and may never come.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "base/task.h"
#include "os/cancel.h"
#include "os/executor.h"
#include "transfer/transports/shm/host_peer.h"

namespace mooncake::transfer::shm {

// Threads of all peers of one engine. Thread-safe.
class PatientThreads {
 public:
  static constexpr std::size_t kMost = 32;
  bool has_room() const { return count_.load(std::memory_order_relaxed) < kMost; }
  bool take();
  void give_back() { count_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> count_{0};
};

// To and from one peer, on a few threads that start when they are needed, through memory of their
// own, kMostBytes for each thread: a call leaves at its deadline, and what the kernel still does
// then touches nothing of its caller. A write that was left so may land in the peer's memory later;
// until it has ended it stands in the peer's gate. Executor thread only.
class PatientCopies {
 public:
  static constexpr std::size_t kThreads = 8;  // as many calls may be left at once
  static constexpr std::uint64_t kMostBytes = 1u << 20;

  PatientCopies(os::Executor& executor, std::shared_ptr<PatientThreads> threads);
  // A thread that the kernel holds is left to itself: it ends with the copy, the peer's process or
  // this one. The others have ended.
  ~PatientCopies();
  PatientCopies(const PatientCopies&) = delete;
  PatientCopies& operator=(const PatientCopies&) = delete;

  struct Call {
    std::shared_ptr<HostPeer> peer;
    AttemptId id;
    memory::Pass write_pass;  // of guarded writes; kNone: others
    TimePoint deadline;
    os::CancelToken* cancel;
  };
  // Moves what it can of the slices for which the peer needs patience; what it can't stays
  // kNotReady. kDeadlineExceeded, kCancelled and kConnectionLost (closed) when a copy was left, or
  // had no thread. No other way is to be tried then: it would hold up the peer's engine in its own
  // memory.
  base::Task<Result<void>> copy(const Call& call, std::span<Slice> slices, HostPeer::Trail& trail);

  // Whether no write can land any more that a call has left.
  bool are_over() const;
  // The same of the attempts up to `id.attempt` of its batch and slice.
  bool are_over(const AttemptId& id) const;
  // Whether one may still land where these slices write.
  bool may_land(std::span<const Slice> slices) const;
  // All leave, and nobody waits any more.
  void close() { closed_.cancel(); }

 private:
  struct Job;
  class Workers;

  base::Task<Result<void>> wait_for_thread(const Call& call, const Job& job);
  base::Task<Result<void>> run(const Call& call, std::shared_ptr<Job> job);
  Code why_left(const Call& call) const;

  os::Executor& executor_;
  const std::shared_ptr<Workers> workers_;
  os::CancelToken closed_;
};

}  // namespace mooncake::transfer::shm
