// What the benches here share.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace mooncake::bench {

using Clock = std::chrono::steady_clock;

[[noreturn]] inline void die(const std::string& what) {
  std::perror(what.c_str());
  std::_Exit(1);
}

// Of single calls.
class Latencies {
 public:
  template <typename Work>
  void measure(Work work) {
    const auto begin = Clock::now();
    work();
    each_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  void report(benchmark::State& state) {
    if (each_.empty()) return;
    std::sort(each_.begin(), each_.end());
    state.counters["p50_us"] = each_[each_.size() / 2];
    state.counters["p99_us"] = each_[each_.size() * 99 / 100];
  }

 private:
  std::vector<double> each_;
};

}  // namespace mooncake::bench
