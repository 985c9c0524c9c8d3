// Attempts: which writes of peers may still land here. What makes a fence true: writes that are
// under way are turned off, and those that arrive later are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/ids.h"
#include "mooncake/result.h"
#include "transfer/transport.h"

namespace mooncake::transfer::tcp {

// Executor thread only.
class Attempts {
 public:
  // A peer that leaves more fences behind than this gets kBusy: it has to let its batches end.
  static constexpr std::size_t kMaxFences = 1u << 16;

  // One write under way; ends with the object, which may outlive the table.
  class Ongoing {
   public:
    ~Ongoing();
    bool fenced() const { return fenced_; }

   private:
    friend class Attempts;
    explicit Ongoing(AttemptId id) : id_(id) {}
    const AttemptId id_;
    bool fenced_ = false;
    std::weak_ptr<std::set<Ongoing*>> list_;
  };

  // kCancelled when this attempt was fenced, or its batch is over.
  Result<std::unique_ptr<Ongoing>> begin(AttemptId id);
  // When it returns, nothing of the attempts up to id.attempt of this batch and slice lands any
  // more; slice kWholeBatch means all slices. Returns how many were under way.
  Result<std::size_t> fence(AttemptId id);
  // The engine's last connection has gone: what it sent can't arrive any more.
  void forget(base::Incarnation engine) { engines_.erase(engine); }

  std::size_t fences() const;

 private:
  using Key = std::pair<std::uint64_t, std::uint32_t>;  // batch, slice
  struct Engine {
    std::uint64_t oldest_open_batch = 0;
    std::map<Key, std::uint32_t> fenced;  // -> up to this attempt
    std::shared_ptr<std::set<Ongoing*>> ongoing = std::make_shared<std::set<Ongoing*>>();

    void close_batches_below(std::uint64_t batch);
    bool is_fenced(AttemptId id) const;
    bool is_fenced(Key key, std::uint32_t attempt) const;
  };
  std::map<base::Incarnation, Engine> engines_;
};

}  // namespace mooncake::transfer::tcp
