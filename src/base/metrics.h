// Metrics: counters that cost one relaxed add, exposed through a prometheus registry.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mooncake::base {

using Labels = std::vector<std::pair<std::string, std::string>>;

// Monotonic count. Any thread.
class Counter {
 public:
  void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// A distribution over fixed bucket bounds; percentiles are read off the buckets. Any thread.
class Histogram {
 public:
  explicit Histogram(std::vector<double> upper_bounds);
  // 1 us .. 100 s, 8 per decade, in seconds.
  static std::vector<double> latency_bounds();
  // 256 B .. 16 GiB, powers of two.
  static std::vector<double> size_bounds();

  void observe(double value);  // NaN is passed over
  std::uint64_t count() const;
  double sum() const;
  // Upper bound of the bucket in which the quantile lies: infinity above all bounds, 0 when empty.
  double quantile(double q) const;
  const std::vector<double>& bounds() const { return bounds_; }
  std::vector<std::uint64_t> buckets() const;  // not cumulative; last = above all bounds

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

// The metrics of one component, in the order they were added. What is registered must outlive the
// registry's last expose(). Adding and exposing are safe from any thread.
class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();

  // The same name and labels again give the same counter or histogram; a gauge is added once.
  Counter& counter(const std::string& name, const std::string& help, Labels labels = {});
  Histogram& histogram(const std::string& name, const std::string& help,
                       std::vector<double> bounds);
  // Read when exposed, on the exposing thread.
  void gauge(const std::string& name, const std::string& help, std::function<double()> read,
             Labels labels = {});
  // A family whose members come and go, e.g. one row per segment.
  void gauges(const std::string& name, const std::string& help,
              std::function<std::vector<std::pair<Labels, double>>()> read);

  // Prometheus text format 0.0.4. Values of labels may be any bytes: what is not UTF-8 becomes
  // U+FFFD.
  std::string expose() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mooncake::base
