// Memory of a demo: how much it needs, whether there is so much, and how much it uses.
#pragma once

#include <mooncake/result.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "demo_options.h"
#include "workload/trace.h"

namespace mooncake::demo {

// Memory that a run binds.
struct MemoryPlan {
  std::uint64_t slot_blocks = 0;  // a larger request moves in windows of so many blocks
  std::uint64_t slot_bytes = 0;
  std::uint64_t segments_total = 0;
  std::uint64_t buffers_total = 0;
  std::uint64_t total = 0;  // with what the processes need for themselves
};
MemoryPlan plan_memory(const DemoOptions& options, std::span<const workload::Request> requests);
// kInvalidArgument says what is needed for what, what there is, and which option to lower.
Result<void> check_fits(const MemoryPlan& plan, const DemoOptions& options,
                        std::uint64_t available);

// Bytes that this process and its children may still take: of the machine and of the control groups
// it lives in. Reads below `proc` and `cgroup`; kSystemCall when the machine doesn't say.
Result<std::uint64_t> available_memory(const std::string& proc = "/proc",
                                       const std::string& cgroup = "/sys/fs/cgroup");

// Bytes of the process, pages shared with others by their share (PSS); 0 when the system doesn't
// say.
std::uint64_t memory_of(pid_t pid);

}  // namespace mooncake::demo
