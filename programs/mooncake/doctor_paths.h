// Which paths lead to memory of each kind: tried with a process of this host that does nothing
// else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "demo_cluster.h"
#include "doctor_report.h"
#include "mooncake/result.h"
#include "mooncake/transfer.h"

namespace mooncake::doctor {

// Where memory of both kinds lies in the doctor's process.
struct Offered {
  std::string name;  // of its engine
  std::uint64_t pool = 0;
  std::uint64_t plain = 0;
};

// What that process does: reads from there over each path, and says how it went on stdout. Yama
// lets a parent copy from its children; this way round the two are strangers.
int peer_command(const Offered& offered);

// For memory of a pool, any other memory, and memory on another host. The cluster was made before
// this process had threads.
std::vector<MemoryPaths> look_at_paths(const Result<std::unique_ptr<demo::Cluster>>& cluster,
                                       TransferEngine& engine);

}  // namespace mooncake::doctor
