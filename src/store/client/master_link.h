// MasterLink: calls to the Master that are repeated while the failure is one of the connection, and
// the numbers of commands that make repeating harmless.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/task.h"
#include "net/rpc.h"
#include "os/env.h"
#include "store/client/messages.h"

namespace mooncake::store {

using base::Task;
using base::TimePoint;

// Executor thread only.
class MasterLink {
 public:
  // `rings`: a Master on this host is asked through shared memory.
  MasterLink(os::Env env, std::string master_name, net::RpcClient::Connector connector,
             net::Identity identity, bool rings);

  // Ends by `deadline`; its error names the Master and the last failure.
  Task<Result<net::Bytes>> call(net::Method method, net::Bytes body, TimePoint deadline);
  // One try only.
  Task<Result<net::Bytes>> call_once(net::Method method, const net::Bytes& body,
                                     TimePoint deadline);
  Task<void> stop() { return rpc_->stop(); }
  // Ends the calls under way with kCancelled.
  void interrupt();
  std::uint64_t interrupts() const { return interrupts_; }

  bool connected() const { return rpc_->connected(); }
  base::Epoch newest_epoch() const { return epoch_; }
  std::uint64_t repeated_calls() const { return repeated_; }

 private:
  os::Env env_;
  std::string master_name_;
  base::Epoch epoch_{};
  std::uint64_t repeated_ = 0;
  std::uint64_t interrupts_ = 0;
  std::unique_ptr<net::RpcClient> rpc_;
};

// Hands out command numbers and knows the oldest that is still open. Executor thread only.
class CommandNumbers {
 public:
  // Keeps `count` numbers open while it lives.
  class Open {
   public:
    Open(CommandNumbers& owner, std::size_t count) : owner_(&owner), first_(owner.next_) {
      owner.next_ += count;
      owner.open_.insert(first_);
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() { owner_->open_.erase(first_); }
    Numbers numbers() const { return {first_, owner_->oldest_open()}; }

   private:
    CommandNumbers* owner_;
    std::uint64_t first_;
  };

  std::uint64_t oldest_open() const { return open_.empty() ? next_ : *open_.begin(); }

 private:
  std::uint64_t next_ = 1;
  std::set<std::uint64_t> open_;
};

}  // namespace mooncake::store
