#include "transfer/blocking_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "os/run_blocking.h"

namespace mooncake::transfer {

namespace {

struct Moved {
  std::map<std::string, std::uint64_t> bytes;
  std::map<std::string, std::string> reasons;
};

// The batch, and why its paths were taken.
Task<Moved> transfer_all(Engine& engine, std::span<EngineRequest> requests, TimePoint deadline) {
  Moved moved;
  co_await engine.transfer(requests, deadline, &moved.bytes);
  for (const EngineRequest& request : requests) {
    if (moved.reasons.size() == moved.bytes.size()) break;
    const auto paths = engine.paths(request.target);
    if (paths.empty() || !paths.front().usable) continue;
    for (const auto& [way, bytes] : moved.bytes) {
      // A transport may know several ways: then its own reason is that of all.
      const auto named = std::find_if(paths.begin(), paths.end(), [&](const auto& path) {
        return path.usable && path.transport == way;
      });
      moved.reasons.emplace(way, named == paths.end() ? paths.front().reason : named->reason);
    }
  }
  co_return moved;
}

}  // namespace

BlockingBatch::BlockingBatch(Engine& engine, std::span<const TransferRequest> requests)
    : engine_(engine), requests_(requests), sources_(requests.size()), slices_(requests.size()) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const TransferRequest& request = requests[i];
    Slice& slice = slices_[i];
    slice.opcode = request.opcode;
    slice.remote = request.target_offset;
    slice.length = request.length;
    if (request.length == 0) continue;
    const bool registered =
        engine.registry().covers(reinterpret_cast<std::uint64_t>(request.source), request.length);
    slice.code = registered ? Code::kNotReady : Code::kAddressNotRegistered;
    sources_[i] = {static_cast<std::byte*>(request.source), request.length};
    slice.local = {&sources_[i], 1};
  }
}

void BlockingBatch::copy_directly(TimePoint deadline) {
  for (std::size_t first = 0, next = 0; first < requests_.size(); first = next) {
    const SegmentHandle target = requests_[first].target;
    while (next < requests_.size() && requests_[next].target == target)
      ++next;
    const auto path = engine_.direct(target);
    if (path) path->copy(std::span(slices_).subspan(first, next - first), deadline);
  }
  std::string_view way;
  std::uint64_t bytes = 0;
  for (const Slice& slice : slices_) {
    if (slice.code != Code::kOk || slice.length == 0) continue;
    if (slice.way != way) add_moved(way, std::exchange(bytes, 0));
    way = slice.way;
    bytes += slice.length;
  }
  add_moved(way, bytes);
}

void BlockingBatch::add_moved(std::string_view path, std::uint64_t bytes) {
  if (bytes == 0) return;
  outcome_.bytes_by_path[std::string(path)] += bytes;
  outcome_.reasons.emplace(path, "copied by the calling thread");
  engine_.add_moved(path, bytes);
}

bool BlockingBatch::has_rest() const {
  return std::any_of(slices_.begin(), slices_.end(),
                     [](const Slice& slice) { return slice.code == Code::kNotReady; });
}

void BlockingBatch::run_rest(os::Executor& executor, TimePoint deadline) {
  std::vector<EngineRequest> rest;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    if (slices_[i].code != Code::kNotReady) continue;
    EngineRequest& request = rest.emplace_back();
    request.slice = slices_[i];
    request.slice.code = Code::kOk;
    request.target = requests_[i].target;
    positions.push_back(i);
  }
  auto moved = os::run_blocking(executor, transfer_all(engine_, rest, deadline));
  if (!moved) return;
  for (std::size_t r = 0; r < rest.size(); ++r)
    slices_[positions[r]].code = rest[r].slice.code;
  for (const auto& [path, bytes] : moved->bytes)
    outcome_.bytes_by_path[path] += bytes;
  outcome_.reasons.merge(moved->reasons);
}

Error BlockingBatch::describe_failure(std::size_t index) const {
  const TransferRequest& request = requests_[index];
  const Code code = slices_[index].code;
  const bool unregistered =
      code == Code::kAddressNotRegistered &&
      !engine_.registry().covers(reinterpret_cast<std::uint64_t>(request.source), request.length);
  return Error(code,
               fmt::format("request {} of {}: {} {} bytes between {} and {:#x}{}", index,
                           requests_.size(), request.opcode == Opcode::kWrite ? "write" : "read",
                           request.length, request.source, request.target_offset,
                           unregistered ? ": the source is not registered" : ""));
}

TransferOutcome BlockingBatch::run(os::Executor& executor, TimePoint deadline) {
  copy_directly(deadline);
  if (has_rest()) run_rest(executor, deadline);
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
  return std::move(outcome_);
}

}  // namespace mooncake::transfer
