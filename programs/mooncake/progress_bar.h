// A line that says how far a long job is: drawn over itself on a terminal, else a line now and
// then.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace mooncake::demo {

struct Progress {
  std::uint64_t requests_done = 0;
  std::uint64_t requests = 0;
  std::uint64_t blocks_done = 0;  // what the time left is reckoned from
  std::uint64_t blocks = 0;
  double hit_ratio = 0;
  std::uint64_t bytes_moved = 0;
  double seconds = 0;  // since the first request
};

// "[####......] 123/400  hit 0.345  1.52 GB/s  8 s left", at most `width` columns.
std::string draw_progress(const Progress& progress, std::size_t width);
// "123/400 requests, hit ratio 0.345, 1.52 GB/s, 8 s left"
std::string say_progress(const Progress& progress);

class ProgressBar {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Draws when `drawn` and `out` is a terminal.
  ProgressBar(std::FILE* out, bool drawn);
  ~ProgressBar();  // clear()
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Writes when it is time to.
  void update(const Progress& progress, Time now);
  Time next_update() const { return next_; }
  // Takes the bar off, so that something else can be written.
  void clear();

 private:
  std::FILE* const out_;
  const bool draws_;
  bool drawn_ = false;
  Time next_{};
};

}  // namespace mooncake::demo
