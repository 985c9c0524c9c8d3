#include "transfer/selection/planner.h"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace mooncake::transfer {

namespace {

std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return by == 0 ? 0 : value / by + (value % by != 0);
}

}  // namespace

double expected_seconds(const Capabilities& capabilities, const Workload& workload) {
  const bool guarded_write = workload.guarded && workload.opcode == Opcode::kWrite;
  const base::Duration extra =
      guarded_write ? capabilities.guarded_write_latency : base::Duration();
  const double latency = std::chrono::duration<double>(capabilities.latency + extra).count();
  const std::uint64_t requests =
      std::max({std::uint64_t{1}, divide_up(workload.bytes, capabilities.max_bytes_per_request),
                divide_up(workload.ranges, capabilities.max_ranges_per_request)});
  const double bandwidth = std::max(1.0, capabilities.bandwidth_bytes_per_second);
  return static_cast<double>(requests) * latency + static_cast<double>(workload.bytes) / bandwidth;
}

std::vector<std::size_t> rank(std::span<const Candidate> candidates, const Workload& workload) {
  std::vector<std::size_t> usable;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (!candidate.reaches) continue;
    const Capabilities& can = *candidate.capabilities;
    const bool may = workload.opcode == Opcode::kRead ? can.guarded_reads : can.guarded_writes;
    if (workload.guarded && !may) continue;
    usable.push_back(i);
  }
  std::stable_sort(usable.begin(), usable.end(), [&](std::size_t a, std::size_t b) {
    return expected_seconds(*candidates[a].capabilities, workload) <
           expected_seconds(*candidates[b].capabilities, workload);
  });
  return usable;
}

RequestLimits common_limits(std::span<const Candidate> candidates,
                            std::span<const std::size_t> chosen) {
  RequestLimits limits{~std::uint64_t{0}, ~std::size_t{0}};
  for (const std::size_t i : chosen) {
    limits.bytes = std::min(limits.bytes, candidates[i].capabilities->max_bytes_per_request);
    limits.ranges =
        std::min<std::size_t>(limits.ranges, candidates[i].capabilities->max_ranges_per_request);
  }
  return limits;
}

std::vector<std::vector<Piece>> cut(std::span<const std::uint64_t> lengths, RequestLimits limits) {
  assert(limits.bytes > 0 && limits.ranges > 0);
  std::vector<std::vector<Piece>> requests;
  std::uint64_t room = 0;
  const auto next_request = [&] {
    requests.emplace_back();
    room = limits.bytes;
  };
  for (std::size_t entry = 0; entry < lengths.size(); ++entry) {
    for (std::uint64_t offset = 0; offset < lengths[entry];) {
      const std::uint64_t length = std::min(lengths[entry] - offset, limits.bytes);
      if (requests.empty() || length > room || requests.back().size() == limits.ranges) {
        next_request();
      }
      requests.back().push_back({entry, offset, length});
      room -= length;
      offset += length;
    }
  }
  return requests;
}

}  // namespace mooncake::transfer
