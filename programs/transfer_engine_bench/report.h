// The lines that users and their scripts look for, to the letter.
#pragma once

#include <cstdint>
#include <string>

#include "mooncake/result.h"

namespace mooncake::bench {

struct Measured {
  double seconds = 0;
  std::uint64_t batches = 0;
  std::uint64_t bytes = 0;
};

// "2.61 GB/s"; kInvalidArgument for a unit that there isn't.
Result<std::string> rate_text(std::uint64_t bytes, double seconds, const std::string& unit,
                              int precision);
// "Test completed: duration 1.01, batch count 314, throughput 2.61 GB/s"
Result<std::string> result_line(const Measured& measured, const std::string& unit, int precision);
// "Transfer Engine RPC using P2P handshake, listening on 127.0.0.1:15002"
std::string listening_line(bool p2p, const std::string& address);

}  // namespace mooncake::bench
