#include "transfer/request_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace mooncake::transfer {

RequestBatch::RequestBatch(Engine& engine, std::span<const TransferRequest> requests,
                           std::optional<Notification> notification)
    : engine_(engine),
      requests_(requests),
      notification_(std::move(notification)),
      sources_(requests.size()),
      slices_(requests.size()) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const TransferRequest& request = requests[i];
    Slice& slice = slices_[i];
    slice.opcode = request.opcode;
    slice.remote = request.target_offset;
    slice.length = request.length;
    if (request.length == 0) continue;
    const bool registered =
        engine.registry().covers(reinterpret_cast<std::uint64_t>(request.source), request.length,
                                 request.opcode == Opcode::kRead);
    slice.code = registered ? Code::kNotReady : Code::kAddressNotRegistered;
    sources_[i] = {static_cast<std::byte*>(request.source), request.length};
    slice.local = {&sources_[i], 1};
  }
}

std::uint64_t RequestBatch::bytes() const {
  std::uint64_t sum = 0;
  for (const TransferRequest& request : requests_) {
    const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - sum;
    sum += std::min(request.length, room);
  }
  return sum;
}

void RequestBatch::copy_directly(TimePoint deadline) {
  for (std::size_t first = 0, next = 0; first < requests_.size(); first = next) {
    const SegmentHandle target = requests_[first].target;
    while (next < requests_.size() && requests_[next].target == target)
      ++next;
    copy_to(first, next, deadline);
  }
}

void RequestBatch::copy_overlapping(TimePoint deadline) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const TransferRequest& request = requests_[i];
    const auto source = reinterpret_cast<std::uint64_t>(request.source);
    const std::uint64_t apart =
        std::max(source, request.target_offset) - std::min(source, request.target_offset);
    if (request.target == SegmentHandle::kLocal && apart < request.length) {
      copy_to(i, i + 1, deadline);
    }
  }
}

void RequestBatch::copy_to(std::size_t first, std::size_t next, TimePoint deadline) {
  const auto path = engine_.direct(requests_[first].target);
  if (!path) return;
  const std::span slices = std::span(slices_).subspan(first, next - first);
  path->copy(slices, deadline);
  for (Slice& slice : slices) {
    if (was_taken_back(slice)) slice.code = Code::kAddressNotRegistered;
  }
  std::string_view way;
  std::uint64_t bytes = 0;
  for (const Slice& slice : slices) {
    if (slice.code != Code::kOk || slice.length == 0) continue;
    if (slice.way != way) add_moved(way, std::exchange(bytes, 0));
    way = slice.way;
    bytes += slice.length;
  }
  add_moved(way, bytes);
}

void RequestBatch::add_moved(std::string_view path, std::uint64_t bytes) {
  if (bytes == 0) return;
  outcome_.bytes_by_path[std::string(path)] += bytes;
  outcome_.reasons.emplace(path, "copied by the calling thread");
  engine_.add_moved(path, bytes);
}

// What the executor has moved, and why its paths were taken.
void RequestBatch::add_moved(std::span<const EngineRequest> requests,
                             const std::map<std::string, std::uint64_t>& moved) {
  std::map<std::string, std::string> reasons;
  for (const EngineRequest& request : requests) {
    if (reasons.size() == moved.size()) break;
    const auto paths = engine_.paths(request.target);
    if (paths.empty() || !paths.front().usable) continue;
    for (const auto& [way, bytes] : moved) {
      // A transport may know several ways: then its own reason is that of all.
      const auto named = std::find_if(paths.begin(), paths.end(), [&](const auto& path) {
        return path.usable && path.transport == way;
      });
      reasons.emplace(way, named == paths.end() ? paths.front().reason : named->reason);
    }
  }
  for (const auto& [way, bytes] : moved)
    outcome_.bytes_by_path[way] += bytes;
  outcome_.reasons.merge(reasons);
}

bool RequestBatch::all_done() const {
  return std::all_of(slices_.begin(), slices_.end(),
                     [](const Slice& slice) { return slice.code == Code::kOk; });
}

bool RequestBatch::has_rest() const {
  const bool unmoved = std::any_of(slices_.begin(), slices_.end(), [](const Slice& slice) {
    return slice.code == Code::kNotReady;
  });
  return unmoved || (notification_ && all_done());
}

Task<void> RequestBatch::finish(TimePoint deadline, os::CancelToken* cancel) {
  std::vector<EngineRequest> rest;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    if (slices_[i].code != Code::kNotReady) continue;
    EngineRequest& request = rest.emplace_back();
    request.slice = slices_[i];
    request.slice.code = Code::kOk;
    request.target = requests_[i].target;
    request.priority = requests_[i].priority;
    positions.push_back(i);
  }
  if (!rest.empty()) {
    std::map<std::string, std::uint64_t> moved;
    co_await engine_.transfer(rest, deadline, &moved, cancel);
    for (std::size_t r = 0; r < rest.size(); ++r)
      slices_[positions[r]].code = rest[r].slice.code;
    add_moved(rest, moved);
  }
  if (!notification_ || !all_done()) co_return;
  if (requests_.empty()) {
    outcome_.notified = fail(Code::kInvalidArgument, "a batch without requests has no target");
    co_return;
  }
  const SegmentHandle target = requests_.front().target;
  outcome_.notified = co_await engine_.notify(target, std::move(*notification_), deadline, cancel);
}

Error RequestBatch::describe_failure(std::size_t index) const {
  const TransferRequest& request = requests_[index];
  const Code code = slices_[index].code;
  std::string_view why;
  if (code == Code::kAddressNotRegistered) {
    const auto source = reinterpret_cast<std::uint64_t>(request.source);
    const bool written = request.opcode == Opcode::kRead;
    if (!engine_.registry().covers(source, request.length)) {
      why = ": the source is not registered";
    } else if (written && !engine_.registry().covers(source, request.length, written)) {
      why = ": the source may not be written";
    }
  }
  return Error(code,
               fmt::format("request {} of {}: {} {} bytes between {} and {:#x}{}", index,
                           requests_.size(), request.opcode == Opcode::kWrite ? "write" : "read",
                           request.length, request.source, request.target_offset, why));
}

TransferOutcome RequestBatch::take_outcome() {
  outcome_.codes.reserve(slices_.size());
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Code code = slices_[i].code;
    outcome_.codes.push_back(code_info(code).transfer);
    if (code == Code::kOk) {
      outcome_.bytes += slices_[i].length;
    } else if (outcome_.status) {
      outcome_.status = fail(describe_failure(i));
    }
  }
  if (notification_ && !outcome_.status) outcome_.notified = outcome_.status;
  return std::move(outcome_);
}

}  // namespace mooncake::transfer
