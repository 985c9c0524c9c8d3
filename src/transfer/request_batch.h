// RequestBatch: one call of TransferEngine::transfer() or submit(): what can be copied on the
// caller's thread is, the rest goes through the executor.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "mooncake/transfer.h"
#include "transfer/engine.h"

namespace mooncake::transfer {

// One thread at a time.
class RequestBatch {
 public:
  // `requests` outlive it. Those whose source is not registered are refused here.
  RequestBatch(Engine& engine, std::span<const TransferRequest> requests,
               std::optional<Notification> notification);
  RequestBatch(const RequestBatch&) = delete;
  RequestBatch& operator=(const RequestBatch&) = delete;

  // Bytes of all requests; the largest number when there are more.
  std::uint64_t bytes() const;
  // On the caller's thread, which is not the executor's, or not for long.
  void copy_directly(TimePoint deadline);
  // The same for requests of this engine to itself whose two ranges overlap: the executor would cut
  // them into pieces, and copy these side by side.
  void copy_overlapping(TimePoint deadline);
  // Something is left for finish().
  bool has_rest() const;
  // Moves the rest, then sends the notification, if all went well. Executor thread.
  Task<void> finish(TimePoint deadline, os::CancelToken* cancel = nullptr);
  // Last of all, when nothing of it is under way.
  TransferOutcome take_outcome();

 private:
  // Of requests [first, next), which have one target.
  void copy_to(std::size_t first, std::size_t next, TimePoint deadline);
  void add_moved(std::string_view path, std::uint64_t bytes);
  void add_moved(std::span<const EngineRequest> requests,
                 const std::map<std::string, std::uint64_t>& moved);
  bool all_done() const;
  Error describe_failure(std::size_t index) const;

  Engine& engine_;
  const std::span<const TransferRequest> requests_;
  std::optional<Notification> notification_;
  std::vector<base::MutableBuffer> sources_;
  std::vector<Slice> slices_;  // one for each request; kNotReady: not moved yet
  TransferOutcome outcome_;
};

}  // namespace mooncake::transfer
