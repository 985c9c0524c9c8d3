// RingQuota: how many connections a server has through rings, and the memory that they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/budget.h"
#include "net/ring.h"

namespace mooncake::net {

// Executor thread only.
class RingQuota : public std::enable_shared_from_this<RingQuota> {
 public:
  // `budget` is charged for each (kReceive); it may be null, else it outlives the places.
  RingQuota(std::size_t limit, base::Budget* budget) : limit_(limit), budget_(budget) {}

  // Of one connection; given back at its end.
  class Place {
   public:
    Place() = default;
    Place(Place&&) = default;
    Place& operator=(Place&& other) noexcept {
      std::swap(quota_, other.quota_);
      return *this;
    }
    ~Place() {
      if (quota_) quota_->give_back();
    }

   private:
    friend class RingQuota;
    explicit Place(std::shared_ptr<RingQuota> quota) : quota_(std::move(quota)) {}
    std::shared_ptr<RingQuota> quota_;
  };

  // kBusy, kOutOfMemory.
  Result<Place> take() {
    Result<void> room = used_ < limit_ ? Result<void>() : fail(Code::kBusy, "too many rings");
    if (room && budget_) room = budget_->take(base::MemoryUse::kReceive, kRingMemory, "a ring");
    if (!room) {
      ++refused_;
      return fail(std::move(room).error());
    }
    ++used_;
    return Place(shared_from_this());
  }
  std::uint64_t refused() const { return refused_; }

 private:
  void give_back() {
    --used_;
    if (budget_) budget_->give_back(base::MemoryUse::kReceive, kRingMemory);
  }

  const std::size_t limit_;
  base::Budget* const budget_;
  std::size_t used_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace mooncake::net
