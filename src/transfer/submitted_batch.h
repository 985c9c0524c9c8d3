// SubmittedBatch: a batch that runs behind its submitter, and what its handle can tell.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mooncake/transfer.h"
#include "os/local_socket.h"
#include "os/open_calls.h"
#include "transfer/request_batch.h"

namespace mooncake::transfer {

// Outlives the engine as long as somebody holds it: from its end on it uses nothing of the
// engine's.
class SubmittedBatch final : public TransferBatch,
                             public std::enable_shared_from_this<SubmittedBatch> {
 public:
  // `stay` is left at the end of the batch; until then engine and executor live.
  SubmittedBatch(Engine& engine, os::Executor& executor, std::vector<TransferRequest> requests,
                 std::optional<Notification> notification, os::OpenCalls::Stay stay);
  ~SubmittedBatch() override;

  // Once, on the submitter's thread.
  void start(TimePoint deadline);

  bool done() const override { return done_.load(std::memory_order_acquire); }
  bool wait(std::chrono::milliseconds timeout) const override;
  const TransferOutcome& outcome() const override;
  void cancel() override;
  int completion_fd() override;
  void on_done(std::function<void()> callback) override;

 private:
  bool in_own_process() const;
  void end();
  void signal_fd() const;

  const pid_t owner_;
  std::vector<TransferRequest> requests_;
  std::optional<RequestBatch> batch_;  // until the end
  os::CancelToken cancel_;             // of the executor's thread
  os::OpenCalls::Stay stay_;

  std::atomic<bool> done_{false};  // the outcome is there, and does not change
  TransferOutcome outcome_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  os::Executor* executor_;  // guarded by mutex, as all below; null from the end on
  os::UniqueFd event_;      // an eventfd, once somebody has asked for it
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace mooncake::transfer
