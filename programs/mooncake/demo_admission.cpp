#include "demo_admission.h"

#include <algorithm>
#include <cassert>

namespace mooncake::demo {

Admission::Admission(std::span<const workload::Request> requests) : requests_(requests) {}

std::optional<std::size_t> Admission::next() const {
  if (looking_ || all_started()) return std::nullopt;
  const auto& ids = requests_[started_].hash_ids;
  const bool wait = !writers_.empty() && std::any_of(ids.begin(), ids.end(), [this](auto id) {
    return writers_.contains(id);
  });
  return wait ? std::nullopt : std::optional(started_);
}

void Admission::start(std::size_t request) {
  assert(next() == request);
  ++started_;
  looking_ = true;
  // Nothing is written before found().
  const std::size_t blocks = requests_[request].hash_ids.size();
  writing_requests_[request] = {.from = blocks, .done = 0};
}

void Admission::found(std::size_t request, std::size_t hits) {
  if (request + 1 == started_) looking_ = false;
  const auto entry = writing_requests_.find(request);
  if (entry == writing_requests_.end()) return;
  const auto& ids = requests_[request].hash_ids;
  Writing& writing = entry->second;
  const std::size_t begin = std::max(hits, writing.done);
  for (std::size_t i = begin; i < writing.from; ++i)
    add(ids[i]);
  writing.from = std::min(writing.from, begin);
}

void Admission::stored(std::size_t request, std::size_t up_to) {
  const auto entry = writing_requests_.find(request);
  if (entry == writing_requests_.end()) return;
  const auto& ids = requests_[request].hash_ids;
  Writing& writing = entry->second;
  for (std::size_t i = writing.from; i < up_to; ++i)
    remove(ids[i]);
  writing.from = std::max(writing.from, up_to);
  writing.done = up_to;
  if (up_to >= ids.size()) writing_requests_.erase(entry);
}

void Admission::add(std::uint64_t id) { ++writers_[id]; }

void Admission::remove(std::uint64_t id) {
  const auto entry = writers_.find(id);
  if (entry != writers_.end() && --entry->second == 0) writers_.erase(entry);
}

}  // namespace mooncake::demo
