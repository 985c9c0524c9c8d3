// BlockingBatch: one call of TransferEngine::transfer(): what can be copied on the caller's thread
// is, the rest goes through the executor.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "mooncake/transfer.h"
#include "os/executor.h"
#include "transfer/engine.h"

namespace mooncake::transfer {

// One thread, which is not the executor's.
class BlockingBatch {
 public:
  // `requests` outlive it. Those whose source is not registered are refused here.
  BlockingBatch(Engine& engine, std::span<const TransferRequest> requests);
  BlockingBatch(const BlockingBatch&) = delete;
  BlockingBatch& operator=(const BlockingBatch&) = delete;

  TransferOutcome run(os::Executor& executor, base::TimePoint deadline);

 private:
  void copy_directly(base::TimePoint deadline);
  bool has_rest() const;
  void run_rest(os::Executor& executor, base::TimePoint deadline);
  void add_moved(std::string_view path, std::uint64_t bytes);
  Error describe_failure(std::size_t index) const;

  Engine& engine_;
  const std::span<const TransferRequest> requests_;
  std::vector<base::MutableBuffer> sources_;
  std::vector<Slice> slices_;  // one for each request; kNotReady: not moved yet
  TransferOutcome outcome_;
};

}  // namespace mooncake::transfer
