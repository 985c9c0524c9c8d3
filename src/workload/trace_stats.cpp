#include "workload/trace_stats.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace mooncake::workload {

std::uint64_t percentile(std::span<const std::uint64_t> values, double percent) {
  assert(percent > 0 && percent <= 100);
  if (values.empty()) {
    return 0;
  }
  const auto rank =
      static_cast<std::size_t>(std::ceil(percent * static_cast<double>(values.size()) / 100.0));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

Percentiles percentiles(std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  return {.p50 = percentile(values, 50),
          .p90 = percentile(values, 90),
          .p99 = percentile(values, 99),
          .max = percentile(values, 100)};
}

double TraceStats::hit_ratio() const {
  return blocks == 0 ? 0.0 : static_cast<double>(hit_blocks) / static_cast<double>(blocks);
}

std::size_t StatsCollector::add(const Request& request) {
  const std::vector<std::uint64_t>& ids = request.hash_ids;
  std::size_t hits = 0;
  while (hits < ids.size() && seen_.contains(ids[hits])) {
    sums_.hit_tokens += block_tokens(request.input_length, hits);
    ++hits;
  }
  // Only now: within one request a block can't hit what the request itself brings.
  seen_.insert(ids.begin() + static_cast<std::ptrdiff_t>(hits), ids.end());
  ++sums_.requests;
  sums_.duration_ms = request.timestamp_ms;
  sums_.blocks += ids.size();
  sums_.unique_blocks = seen_.size();
  sums_.hit_blocks += hits;
  sums_.input_tokens += request.input_length;
  sums_.output_tokens += request.output_length;
  blocks_.push_back(ids.size());
  input_lengths_.push_back(request.input_length);
  return hits;
}

TraceStats StatsCollector::stats() const {
  TraceStats stats = sums_;
  stats.blocks_per_request = percentiles(blocks_);
  stats.input_length = percentiles(input_lengths_);
  return stats;
}

TraceStats trace_stats(std::span<const Request> requests) {
  StatsCollector collector;
  for (const Request& request : requests) {
    collector.add(request);
  }
  return collector.stats();
}

}  // namespace mooncake::workload
