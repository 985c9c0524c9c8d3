// Planner: which transport, and how a batch is cut into requests. Pure arithmetic over capability
// records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/transport.h"

namespace mooncake::transfer {

struct Workload {
  std::uint64_t bytes = 0;
  std::size_t ranges = 0;
  bool guarded = false;
  Opcode opcode = Opcode::kRead;
};

// Seconds that this much is expected to take: one latency, and one more for each further request,
// plus the bytes at full bandwidth. Smaller is better.
double expected_seconds(const Capabilities& capabilities, const Workload& workload);

// Positions of the usable candidates, best first; equal ones in the order given.
struct Candidate {
  const Capabilities* capabilities = nullptr;
  bool reaches = false;
};
std::vector<std::size_t> rank(std::span<const Candidate> candidates, const Workload& workload);

// What one request may hold.
struct RequestLimits {
  std::uint64_t bytes = 0;
  std::size_t ranges = 0;
};
// The strictest of these; for plans that may change their transport half-way.
RequestLimits common_limits(std::span<const Candidate> candidates,
                            std::span<const std::size_t> chosen);

// Bytes [offset, offset + length) of one entry.
struct Piece {
  std::size_t entry = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
// Cuts entries of these lengths, in order, into requests within the limits. Entries of no length
// are left out. An entry is cut only when it is larger than a whole request may be.
std::vector<std::vector<Piece>> cut(std::span<const std::uint64_t> lengths, RequestLimits limits);

}  // namespace mooncake::transfer
