// EngineSession: what one initialize() has opened.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/task.h"
#include "mooncake/transfer.h"
#include "native/batch_table.h"
#include "os/cancel.h"
#include "transfer/managed_memory.h"

namespace mooncake::python {

// Shared by the calls under way, so that none of them sees it go. Any thread, without the GIL.
class EngineSession {
 public:
  EngineSession(std::unique_ptr<TransferEngine> engine, std::chrono::milliseconds timeout);
  EngineSession(const EngineSession&) = delete;
  EngineSession& operator=(const EngineSession&) = delete;

  TransferEngine& engine() { return *engine_; }
  transfer::ManagedMemory& managed_memory() { return managed_memory_; }

  // Moves the batch, whose entries' targets it fills in, and waits; a signal handler that raises
  // ends that. 0, or -1; of failures in a row with one peer the first of each kind is logged, and
  // then one a minute. `requests` is used up.
  int transfer(const std::string& target, std::vector<TransferRequest>& requests,
               const std::optional<Notification>& notification);
  // The same without waiting: the batch's number, or 0.
  std::uint64_t submit(const std::string& target, std::vector<TransferRequest> requests);
  // Waits for all, and frees them: 0 when each of them was done.
  int wait(std::span<const std::uint64_t> batches);
  // 1 done, 0 not yet, -1 failed or unknown, -2 not done by its deadline. Frees what is done or has
  // failed.
  int check(std::uint64_t batch);

  // These end early, too, when a signal handler raises.
  int notify(const std::string& target, const Notification& notification);
  int probe(const std::string& target);
  // 0 when there is none.
  std::uint64_t first_buffer(const std::string& target);

  // Calls under way end with an error, as do all later ones.
  void stop();

 private:
  // Runs what `begin` makes, and waits for it; on the main thread a signal handler that raises ends
  // that.
  template <typename T>
  Result<T> ask(const std::function<base::Task<Result<T>>(transfer::Engine&, base::TimePoint,
                                                          os::CancelToken&)>& begin);
  Result<SegmentHandle> open(const std::string& target);
  Result<void> move(const std::string& target, std::vector<TransferRequest>& requests,
                    const std::optional<Notification>& notification);
  Result<std::uint64_t> start(const std::string& target, std::vector<TransferRequest> requests);
  int note(const std::string& target, const Result<void>& outcome);

  // What was last logged of a peer whose calls fail.
  struct Failing {
    std::string kind;
    std::chrono::steady_clock::time_point logged;
    std::uint64_t suppressed = 0;  // since then
  };

  const std::unique_ptr<TransferEngine> engine_;
  const std::chrono::milliseconds timeout_;
  transfer::ManagedMemory managed_memory_;
  BatchTable batches_;

  std::mutex mutex_;
  std::unordered_map<std::string, SegmentHandle> handles_;  // guarded by mutex_, as below
  std::unordered_map<std::string, Failing> failing_;        // by peer
};

}  // namespace mooncake::python
