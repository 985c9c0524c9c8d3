// Flags of transfer_engine_bench; names and defaults are those of the published program.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mooncake/config.h"
#include "mooncake/transfer.h"

namespace mooncake::bench {

std::span<const Setting> bench_settings();

enum class Mode { kInitiator, kTarget };

struct Plan {
  Mode mode = Mode::kInitiator;
  TransferOptions engine;
  Opcode opcode = Opcode::kRead;
  std::string segment;
  std::uint64_t buffer_size = 0;
  std::uint64_t block_size = 0;
  std::uint64_t batch_size = 0;  // blocks
  std::uint64_t threads = 0;
  std::chrono::milliseconds duration{};
  std::string unit;  // "GB"
  int precision = 0;
  bool pool_memory = true;
  bool verify = false;
  std::vector<std::string> notices;

  // Of all blocks that the threads move; they lie side by side from the begin of the buffers.
  std::uint64_t moved_at_once() const { return threads * batch_size * block_size; }
};

// kInvalidArgument and kNotSupported name the flag.
Result<Plan> make_plan(const Settings& settings);

}  // namespace mooncake::bench
