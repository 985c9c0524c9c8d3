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
    add(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  void add(double seconds) { each_.push_back(seconds * 1e6); }
  void report(benchmark::State& state, const std::string& prefix = "") {
    if (each_.empty()) return;
    std::sort(each_.begin(), each_.end());
    state.counters[prefix + "p50_us"] = each_[each_.size() / 2];
    state.counters[prefix + "p99_us"] = each_[each_.size() * 99 / 100];
  }

 private:
  std::vector<double> each_;
};

}  // namespace mooncake::bench
