#include "native/batch_table.h"

#include <algorithm>
#include <utility>

namespace mooncake::python {

namespace {

constexpr std::size_t kRemembered = 1024;

}  // namespace

Result<void> BatchTable::check_room() const {
  std::lock_guard lock(mutex_);
  if (batches_.size() < kMost) return {};
  return fail(Code::kBusy, std::to_string(kMost) + " batches whose end nobody has asked for");
}

std::uint64_t BatchTable::add(SubmittedBatch submitted) {
  std::lock_guard lock(mutex_);
  batches_.emplace(next_, std::move(submitted));
  return next_++;
}

SubmittedBatch BatchTable::find(std::uint64_t number) const {
  std::lock_guard lock(mutex_);
  const auto found = batches_.find(number);
  return found == batches_.end() ? SubmittedBatch{} : found->second;
}

SubmittedBatch BatchTable::take(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  auto taken = batches_.extract(number);
  return taken ? std::move(taken.mapped()) : SubmittedBatch{};
}

void BatchTable::note_timed_out(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (timed_out_.size() == kRemembered) timed_out_.pop_front();
  timed_out_.push_back(number);
}

bool BatchTable::has_timed_out(std::uint64_t number) const {
  std::lock_guard lock(mutex_);
  return std::find(timed_out_.begin(), timed_out_.end(), number) != timed_out_.end();
}

}  // namespace mooncake::python
