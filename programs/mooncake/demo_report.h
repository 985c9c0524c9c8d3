// Report: what a run of the demo found out, as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "demo_control.h"

namespace mooncake::demo {

// Calls of one kind. A call moves the blocks of one window, which is a whole request unless that is
// larger than a node's buffer.
class Flow {
 public:
  void add(const Call& call);  // one without bytes is none

  std::uint64_t calls() const { return microseconds_.size(); }
  std::uint64_t bytes() const { return bytes_; }
  double seconds() const;  // inside calls, of all nodes together
  double gigabytes_per_second() const;
  double milliseconds_at(double percent) const;  // by nearest rank

 private:
  std::vector<std::uint64_t> microseconds_;
  std::uint64_t bytes_ = 0;
};

struct Path {
  std::uint64_t bytes = 0;
  std::string reason;  // why it was chosen, as the engine says
};

struct Report {
  // What was asked for.
  std::string trace;
  std::uint64_t seed = 0;
  std::uint64_t requests = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t replicas = 1;

  double seconds = 0;  // from the first request's start to the last one's last block verified
  std::uint64_t blocks = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t not_stored = 0;  // a part of the misses
  std::map<std::int32_t, std::uint64_t> not_stored_by_code;
  double unlimited_hit_ratio = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t tokens_saved = 0;

  Flow store_get;
  Flow store_put;
  Flow handoff;
  std::map<std::string, Path> paths;

  std::uint64_t evicted_objects = 0;
  std::uint64_t evicted_bytes = 0;
  std::uint64_t verified_by_decode = 0;   // bytes
  std::uint64_t verified_by_prefill = 0;  // bytes, of blocks got from the Store
  std::uint64_t wrong_blocks = 0;
  std::vector<WrongBlock> wrong;  // the first few

  std::uint64_t segments_total = 0;  // bytes
  std::uint64_t buffers_total = 0;   // bytes
  std::uint64_t memory_peak = 0;     // bytes in use by all processes, seen once a second

  double hit_ratio() const;
};

// The same requests by one path alone. Name of the path -> what came of it.
using Comparison = std::map<std::string, Report>;

std::string render_table(const Report& report);
std::string render_comparison(const Comparison& comparison);
// One document; its keys are in README.md.
std::string render_json(const Report& report, const Comparison& comparison);
// "request 7, block 0x2a (position 3): decode-1 found the first wrong byte at offset 17 after the
// hand-off"
std::string describe(const WrongBlock& wrong);

// 12 345
std::string grouped(std::uint64_t value);

}  // namespace mooncake::demo
