// Proves: the exposed text is the Prometheus format 0.0.4 word by word (families together, escapes,
// cumulative buckets), counts are right under concurrent writers, and quantiles are the upper
// bounds of the buckets that hold them (against a sorted copy).
#include "base/metrics.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

namespace mooncake::base {
namespace {

TEST(Metrics, ExposesTheTextFormat) {
  MetricsRegistry registry;
  registry.counter("requests_total", "Requests\nby \\ kind.", {{"kind", "get"}}).add(3);
  registry.gauge("keys", "Keys held.", [] { return 2.5; });
  registry.counter("requests_total", "", {{"kind", "a\"b\\c\nd"}}).add();
  Histogram& latency = registry.histogram("wait_seconds", "Waits.", {0.001, 0.5, 1});
  for (const double value : {0.001, 0.25, 7.0})
    latency.observe(value);
  registry.gauges("segment_bytes", "Per segment.", [] {
    return std::vector<std::pair<Labels, double>>{{{{"segment", "a"}, {"host", "x"}}, 1},
                                                  {{{"segment", "b"}, {"host", "y"}}, 1e21}};
  });
  EXPECT_EQ(registry.expose(),
            "# HELP requests_total Requests\\nby \\\\ kind.\n"
            "# TYPE requests_total counter\n"
            "requests_total{kind=\"get\"} 3\n"
            "requests_total{kind=\"a\\\"b\\\\c\\nd\"} 1\n"
            "# HELP keys Keys held.\n"
            "# TYPE keys gauge\n"
            "keys 2.5\n"
            "# HELP wait_seconds Waits.\n"
            "# TYPE wait_seconds histogram\n"
            "wait_seconds_bucket{le=\"0.001\"} 1\n"
            "wait_seconds_bucket{le=\"0.5\"} 2\n"
            "wait_seconds_bucket{le=\"1\"} 2\n"
            "wait_seconds_bucket{le=\"+Inf\"} 3\n"
            "wait_seconds_sum 7.251\n"
            "wait_seconds_count 3\n"
            "# HELP segment_bytes Per segment.\n"
            "# TYPE segment_bytes gauge\n"
            "segment_bytes{segment=\"a\",host=\"x\"} 1\n"
            "segment_bytes{segment=\"b\",host=\"y\"} 1e+21\n");
}

TEST(Metrics, LabelsAreUtf8WhateverTheyWere) {
  MetricsRegistry registry;
  registry.counter("n", "", {{"a", "\xFF\xC3\xB6\"\xC3"}}).add();
  EXPECT_NE(registry.expose().find("n{a=\"\xEF\xBF\xBD\xC3\xB6\\\"\xEF\xBF\xBD\"} 1\n"),
            std::string::npos);
}

TEST(Metrics, ValuesBeyondNumbersHaveTheirWords) {
  MetricsRegistry registry;
  registry.gauge("a", "", [] { return std::nan(""); });
  registry.gauge("b", "", [] { return -std::numeric_limits<double>::infinity(); });
  const std::string text = registry.expose();
  EXPECT_NE(text.find("\na NaN\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nb -Inf\n"), std::string::npos) << text;
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameCounter) {
  MetricsRegistry registry;
  Counter& first = registry.counter("n", "");
  EXPECT_EQ(&registry.counter("n", ""), &first);
  EXPECT_NE(&registry.counter("n", "", {{"a", "b"}}), &first);
  Histogram& histogram = registry.histogram("h", "", {1});
  EXPECT_EQ(&registry.histogram("h", "", {1}), &histogram);
}

TEST(Metrics, AGaugeMayAddMetricsWhileItIsRead) {
  MetricsRegistry registry;
  registry.gauge("size", "", [&registry] {
    registry.counter("late", "").add();
    return 1.0;
  });
  EXPECT_EQ(registry.expose().find("late"), std::string::npos);
  EXPECT_NE(registry.expose().find("\nlate 2\n"), std::string::npos);
}

TEST(Metrics, NothingIsLostBetweenThreads) {
  MetricsRegistry registry;
  Counter& counter = registry.counter("n", "");
  Histogram& histogram = registry.histogram("h", "", {0.5, 1});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&registry, &counter, &histogram, i] {
      for (int n = 0; n < 5000; ++n) {
        counter.add(2);
        histogram.observe(n % 2);
      }
      registry.counter("thread", "", {{"n", std::to_string(i)}}).add();
      EXPECT_FALSE(registry.expose().empty());
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(counter.value(), 40'000u);
  EXPECT_EQ(histogram.count(), 20'000u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 10'000.0);
  EXPECT_EQ(histogram.buckets(), (std::vector<std::uint64_t>{10'000, 10'000, 0}));
}

TEST(Histogram, BoundsAreSortedAndShort) {
  const auto latency = Histogram::latency_bounds();
  EXPECT_EQ(latency.size(), 65u);
  EXPECT_DOUBLE_EQ(latency.front(), 1e-6);
  EXPECT_DOUBLE_EQ(latency[8], 1e-5);
  EXPECT_DOUBLE_EQ(latency.back(), 100);
  EXPECT_TRUE(std::is_sorted(latency.begin(), latency.end()));
  const auto size = Histogram::size_bounds();
  EXPECT_DOUBLE_EQ(size.front(), 256);
  EXPECT_DOUBLE_EQ(size.back(), std::ldexp(1.0, 34));
  EXPECT_EQ(size.size(), 27u);
}

TEST(Histogram, EmptyAndOverflowing) {
  Histogram histogram({1, 2});
  EXPECT_EQ(histogram.quantile(0.5), 0);
  histogram.observe(std::nan(""));
  EXPECT_EQ(histogram.count(), 0u);
  histogram.observe(3);
  EXPECT_EQ(histogram.quantile(0.5), std::numeric_limits<double>::infinity());
}

RC_GTEST_PROP(Histogram, AQuantileIsTheBoundOfItsBucket, ()) {
  const auto values =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 50)));
  const double q = *rc::gen::inRange(0, 101) / 100.0;
  std::vector<double> bounds;
  for (int bound = 5; bound <= 50; bound += 5)
    bounds.push_back(bound);
  Histogram histogram(bounds);
  for (const int value : values)
    histogram.observe(value);
  auto sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const auto rank = std::max(1.0, std::ceil(q * static_cast<double>(sorted.size())));
  const int exact = sorted[static_cast<std::size_t>(rank) - 1];
  RC_ASSERT(histogram.quantile(q) == *std::lower_bound(bounds.begin(), bounds.end(), exact));
}

}  // namespace
}  // namespace mooncake::base
