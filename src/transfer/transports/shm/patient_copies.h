// PatientCopies: copies by the kernel out of and into pages that are not there, and may never come.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/task.h"
#include "os/cancel.h"
#include "os/executor.h"
#include "transfer/transports/shm/host_peer.h"

namespace mooncake::transfer::shm {

// To and from one peer, on a few threads that start when they are needed, through memory of their
// own: a call leaves at its deadline, and what the kernel still does then touches nothing of its
// caller. A write that was left so may land in the peer's memory later; until it has ended it
// stands in the peer's gate, and are_over() is false. Executor thread only.
class PatientCopies {
 public:
  explicit PatientCopies(os::Executor& executor);
  // A thread that the kernel holds is left to itself: it ends with the copy, the peer's process or
  // this one. The others have ended.
  ~PatientCopies();
  PatientCopies(const PatientCopies&) = delete;
  PatientCopies& operator=(const PatientCopies&) = delete;

  // Moves what it can of the slices for which `peer` needs patience; what it can't stays kNotReady.
  // kDeadlineExceeded, kCancelled and kConnectionLost (closed) when a copy was left.
  base::Task<Result<void>> copy(std::shared_ptr<HostPeer> peer, std::span<Slice> slices,
                                memory::Pass write_pass, HostPeer::Trail& trail, TimePoint deadline,
                                os::CancelToken* cancel);

  // Whether nothing that a call has left can land any more.
  bool are_over() const;
  // All leave, and nobody waits any more.
  void close() { closed_.cancel(); }

 private:
  struct Job;
  class Workers;

  base::Task<Result<void>> run(std::shared_ptr<Job> job, TimePoint deadline,
                               os::CancelToken* cancel);

  os::Executor& executor_;
  const std::shared_ptr<Workers> workers_;
  os::CancelToken closed_;
};

}  // namespace mooncake::transfer::shm
