// Admission: which request may start. Strictly in trace order, and none that needs a block which is
// still being written: so every node finds what a cache serving one request after another would
// hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "workload/trace.h"

namespace mooncake::demo {

// Not thread-safe. Requests are named by their index in the trace, which must outlive this.
class Admission {
 public:
  explicit Admission(std::span<const workload::Request> requests);

  // The next request if it may start now: the one before it has said what it found, and none of its
  // blocks is being written. The same answer until start().
  std::optional<std::size_t> next() const;
  bool all_started() const { return started_ == requests_.size(); }

  // `request` is next()'s answer.
  void start(std::size_t request);
  // It writes its blocks from `hits` on. Called again, with fewer, when a read has failed.
  void found(std::size_t request, std::size_t hits);
  // Its blocks before `up_to` are no longer being written; ends with all of them, also when all
  // hit.
  void stored(std::size_t request, std::size_t up_to);

 private:
  struct Writing {
    std::size_t from = 0;  // blocks from here on are counted in writers_
    std::size_t done = 0;  // blocks before were stored()
  };
  void add(std::uint64_t id);
  void remove(std::uint64_t id);

  const std::span<const workload::Request> requests_;
  std::size_t started_ = 0;
  bool looking_ = false;  // the last started request hasn't said what it found
  std::unordered_map<std::size_t, Writing> writing_requests_;
  std::unordered_map<std::uint64_t, std::uint32_t> writers_;  // block -> requests that write it
};

}  // namespace mooncake::demo
