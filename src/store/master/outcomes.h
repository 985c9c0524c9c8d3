// Outcomes: what one client has been answered, by number, so that a repeated command gets the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "store/master/core.h"
#include "store/master/slab.h"

namespace mooncake::store::master {

// Shared by all clients; bounds what they can make us remember.
struct OutcomeBudget {
  std::size_t left = std::size_t{1} << 22;  // slots of 64 bytes
};

// A window of numbers that begins at the client's oldest open one. One thread.
class Outcomes {
 public:
  static constexpr std::uint64_t kWindow = 65536;

  enum class State : std::uint8_t {
    kUnknown,
    kAnswered,
    kOpen,  // a grant that has not ended yet
  };
  struct Outcome {
    base::Version version;
    std::uint64_t size = 0;
    Placement placements[kMaxReplicas];
    std::uint32_t key_check = 0;  // some bits of the key's hash
    std::uint32_t entry = kNone;  // of a grant; of a sweep its cursor
    Code code = Code::kOk;
    std::uint8_t replicas = 0;
    CommandKind kind{};
    State state = State::kUnknown;

    void set(const Effect& effect);
    Effect effect() const;
  };
  static_assert(sizeof(Outcome) == 64);

  explicit Outcomes(OutcomeBudget& budget) : budget_(budget) {}
  ~Outcomes();
  Outcomes(const Outcomes&) = delete;
  Outcomes& operator=(const Outcomes&) = delete;

  // Numbers below are the client's past. Calls abandoned(outcome) for each grant that is still
  // open.
  template <typename Abandoned>
  void forget_below(std::uint64_t number, Abandoned abandoned) {
    if (number <= floor_) return;
    const std::uint64_t stop = number < end_ ? number : end_;
    for (; floor_ < stop; ++floor_) {
      Outcome& outcome = ring_[floor_ & (ring_.size() - 1)];
      if (outcome.state == State::kOpen) abandoned(outcome);
      outcome = Outcome{};
    }
    floor_ = number;
    if (floor_ >= end_) shrink();
  }
  bool is_past(std::uint64_t number) const { return number < floor_; }
  // The number with these low bits, of a grant that is open.
  std::uint64_t whole(std::uint32_t low) const {
    return floor_ + (low - static_cast<std::uint32_t>(floor_));
  }
  // The number's place, valid until the next call; null when it is in the past, too far ahead of
  // the oldest open one, or the budget is spent.
  Outcome* at(std::uint64_t number);
  // The same, without making room for it: null when nothing is known of the number.
  const Outcome* known(std::uint64_t number) const {
    return number < floor_ || number >= end_ ? nullptr : &ring_[number & (ring_.size() - 1)];
  }
  // The grant of this number has ended.
  void close(std::uint64_t number) {
    if (number < floor_ || number >= end_) return;
    Outcome& outcome = ring_[number & (ring_.size() - 1)];
    if (outcome.state == State::kOpen) outcome.state = State::kAnswered;
  }

  std::size_t slots() const { return ring_.size(); }

 private:
  bool grow(std::uint64_t slots);
  void shrink();

  OutcomeBudget& budget_;
  std::uint64_t floor_ = 0;    // oldest open number
  std::uint64_t end_ = 0;      // one beyond the highest place that was asked for
  std::vector<Outcome> ring_;  // by number modulo its size, a power of two
};

}  // namespace mooncake::store::master
