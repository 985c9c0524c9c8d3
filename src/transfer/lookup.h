// Lookup: from a segment's name to an address. P2P: the name is the address. Key-value: documents
// in a metastore, as the published handshake writes them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/task.h"
#include "metastore/metastore.h"
#include "mooncake/result.h"
#include "net/address.h"
#include "os/cancel.h"

namespace mooncake::transfer {

// Executor thread only; calls end by their deadline.
class SegmentLookup {
 public:
  virtual ~SegmentLookup() = default;
  // kSegmentNotFound names the segment; kCancelled soon after a cancel.
  virtual base::Task<Result<net::Address>> find(std::string name, base::TimePoint deadline,
                                                os::CancelToken* cancel = nullptr) = 0;
  virtual base::Task<Result<void>> publish(std::string name, net::Address address,
                                           base::TimePoint deadline) = 0;
  virtual base::Task<Result<void>> withdraw(std::string name, base::TimePoint deadline) = 0;

  // Whether what was published lies with a service that may lose it.
  virtual bool may_forget() const { return false; }
  enum class Standing { kPublished, kMissing, kTaken };
  // What has become of publish(): kMissing when it must be done anew, kTaken when another engine
  // has published an address of its own under this name. kCancelled soon after a cancel.
  virtual base::Task<Result<Standing>> standing(std::string, net::Address, base::TimePoint,
                                                os::CancelToken*) {
    co_return Standing::kPublished;
  }
};

// The name of a segment, as its callers give it: the published engine takes "/name" for "name".
inline std::string segment_name(std::string_view given) {
  if (given.starts_with('/')) given.remove_prefix(1);
  return std::string(given);
}

std::unique_ptr<SegmentLookup> make_p2p_lookup();
// Keys `mooncake/rpc_meta/<name>` and `mooncake/ram/<name>`.
// The clock outlives it; it only dates the documents.
std::unique_ptr<SegmentLookup> make_metastore_lookup(std::unique_ptr<metastore::Metastore> store,
                                                     const base::Clock& clock);

}  // namespace mooncake::transfer
