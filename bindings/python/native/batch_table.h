// BatchTable: batches that were submitted, by the numbers that Python callers have for them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "mooncake/transfer.h"

namespace mooncake::python {

struct SubmittedBatch {
  std::shared_ptr<TransferBatch> batch;  // null: there is none of that number
  std::string target;
};

// A number is never used again, so that one that is out of date is an error. Thread-safe.
class BatchTable {
 public:
  static constexpr std::size_t kMost = 1u << 16;

  // kBusy when there are too many that nobody has asked for.
  Result<void> check_room() const;
  std::uint64_t add(SubmittedBatch submitted);
  SubmittedBatch find(std::uint64_t number) const;
  SubmittedBatch take(std::uint64_t number);

  // A batch that was given up at its deadline has no end that could be asked for: it is remembered,
  // the youngest 1024 are.
  void note_timed_out(std::uint64_t number);
  bool has_timed_out(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, SubmittedBatch> batches_;  // guarded by mutex_, as all below
  std::deque<std::uint64_t> timed_out_;
  std::uint64_t next_ = 1;
};

}  // namespace mooncake::python
