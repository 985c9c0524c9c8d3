// The side that moves data, and measures.
#pragma once

#include "mooncake/transfer.h"
#include "transfer_engine_bench/memory.h"
#include "transfer_engine_bench/report.h"
#include "transfer_engine_bench/settings.h"

namespace mooncake::bench {

// Moves batches between `memory` and the target's oldest buffer until plan.duration has passed, at
// least one on each thread. The first failure ends all, and names the target.
Result<Measured> measure(TransferEngine& engine, const Plan& plan, const Memory& memory);

// After measure(): whether what was moved is what was filled in at the other end; what was written
// is read back for it. Gives the number of bytes looked at.
Result<std::uint64_t> verify(TransferEngine& engine, const Plan& plan, const Memory& memory);

}  // namespace mooncake::bench
