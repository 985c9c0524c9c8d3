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

// What that process does: offers memory of both kinds, says where on stdout, and waits for its
// end.
int peer_command();

// That process, from the other side.
class TestPeer {
 public:
  // Before this process has threads: signals are held back while it lives.
  static Result<TestPeer> start();

  const std::string& name() const { return name_; }
  std::uint64_t pool() const { return pool_; }
  std::uint64_t plain() const { return plain_; }

 private:
  std::unique_ptr<demo::Cluster> cluster_;
  std::string name_;
  std::uint64_t pool_ = 0, plain_ = 0;  // addresses there
};

// For memory of a pool, any other memory, and memory on another host. `engine` chooses as its
// settings say.
std::vector<MemoryPaths> look_at_paths(const Result<TestPeer>& peer, TransferEngine& engine,
                                       const TransferOptions& options);

}  // namespace mooncake::doctor
