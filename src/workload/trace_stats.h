// What a trace asks for, and how much of it a cache that never evicts would have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "workload/trace.h"

namespace mooncake::workload {

// By nearest rank: the smallest value that at least p percent of all values don't exceed.
struct Percentiles {
  std::uint64_t p50 = 0;
  std::uint64_t p90 = 0;
  std::uint64_t p99 = 0;
  std::uint64_t max = 0;
  bool operator==(const Percentiles&) const = default;
};
// 0 < percent <= 100; 0 when there are no values. `values` must be sorted.
std::uint64_t percentile(std::span<const std::uint64_t> values, double percent);
Percentiles percentiles(std::vector<std::uint64_t> values);

struct TraceStats {
  std::uint64_t requests = 0;
  std::uint64_t duration_ms = 0;  // timestamp of the last request
  std::uint64_t blocks = 0;
  std::uint64_t unique_blocks = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t hit_tokens = 0;
  Percentiles blocks_per_request;
  Percentiles input_length;  // tokens

  // Share of blocks that unlimited capacity would hit; 0 for an empty trace.
  double hit_ratio() const;
};

// Fed in trace order. A block hits if it and all before it in its request came in earlier requests.
class StatsCollector {
 public:
  // The number of leading blocks that hit.
  std::size_t add(const Request& request);
  TraceStats stats() const;

 private:
  TraceStats sums_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<std::uint64_t> blocks_;
  std::vector<std::uint64_t> input_lengths_;
};

TraceStats trace_stats(std::span<const Request> requests);

}  // namespace mooncake::workload
