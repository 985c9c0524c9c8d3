// SliceScheduler: which of several rails a slice takes, and when. Pure: who uses it moves the bytes
// and tells it the time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "mooncake/transfer.h"

namespace mooncake::transfer {

using RailId = std::uint32_t;   // 0, 1, ... in the order of add_rail()
using SliceId = std::uint64_t;  // never used twice

// One thread.
class SliceScheduler {
 public:
  struct Rules {
    Rules() = default;
    // On the way on one rail at a time. A slice larger than the window goes alone.
    std::uint64_t window_bytes = 32u << 20;
    std::uint32_t window_slices = 64;
    // Bytes that each priority gets for one of kBackground while all have slices waiting.
    std::array<std::uint32_t, kPriorities> weights{1, 4, 16};
    // A slice leaves the rail that the last one took only where it is expected to be done this many
    // times as soon.
    double stay = 1.25;
    // What a new measurement counts for in the average.
    double newest = 0.125;
    // A rail that failed is not used for this long; twice as long after each further failure.
    base::Duration first_pause = std::chrono::milliseconds(100);
    base::Duration longest_pause = std::chrono::seconds(10);
    // A slice is stuck when it takes this many times as long as is expected of its rail with all
    // that is on the way there, but not before `least_patience`.
    double patience = 8;
    base::Duration least_patience = std::chrono::seconds(2);
  };

  // Of one slice, without waiting for others.
  struct Estimate {
    double bytes_per_second = 1e9;
    base::Duration latency{};
  };

  struct Slice {
    SliceId id = 0;
    std::uint64_t bytes = 0;
    Priority priority = Priority::kNormal;
    base::TimePoint deadline = base::TimePoint::max();
    std::optional<RailId> avoid;  // where an earlier attempt has failed; used when no other is left
  };

  struct Decision {
    SliceId slice = 0;
    bool goes = false;  // else its deadline has passed: it is forgotten
    RailId rail = 0;
    base::Duration patience{};  // after which it counts as stuck
  };

  enum class End {
    kDone,
    kFailed,    // by the rail's fault: broken or refused
    kStuck,     // did not end within its patience
    kCalledOff  // for other reasons; says nothing of the rail
  };

  explicit SliceScheduler(const Rules& rules) : rules_(rules) {}

  // `expected` holds until there are measurements.
  RailId add_rail(Estimate expected);

  void enqueue(const Slice& slice);
  // False when it is not waiting (any more).
  bool withdraw(SliceId slice);
  // The next slice that goes, or that has waited in vain. Nothing: all that wait have to, until
  // finished(), enqueue() or next_deadline().
  std::optional<Decision> next(base::TimePoint now);
  // Of a slice that went.
  void finished(SliceId slice, End end, base::TimePoint now);

  // Of those that wait.
  std::optional<base::TimePoint> next_deadline() const;

  struct RailState {
    Estimate estimate;
    std::uint64_t bytes_on_the_way = 0;
    std::size_t slices_on_the_way = 0;
    std::uint32_t failures = 0;  // since the last success
    base::TimePoint paused_until{};
  };
  std::size_t rails() const { return rails_.size(); }
  const RailState& rail(RailId rail) const { return rails_[rail].state; }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Rail {
    RailState state;
    std::uint64_t moved = 0;  // bytes since the beginning
    base::TimePoint last_failure{};
    bool on_probation = false;  // a slice is on its way after a pause
  };
  struct OnTheWay {
    RailId rail = 0;
    std::uint64_t bytes = 0;
    base::TimePoint began{};
    std::uint64_t rail_had_moved = 0;
    bool alone = false;  // on its rail, when it began
    bool probe = false;  // after a failure
  };
  struct Class {
    std::deque<SliceId> queue;  // may hold slices that were withdrawn
    std::uint64_t credit = 0;   // bytes
  };

  Class& class_of(Priority priority) { return classes_[static_cast<std::size_t>(priority)]; }
  std::optional<Decision> expire(base::TimePoint now);
  void forget(std::map<SliceId, Slice>::iterator slice);
  const Slice* front_of(Class& each);
  Class* choose_class();
  std::optional<RailId> choose_rail(const Slice& slice, base::TimePoint now) const;
  bool has_room(const Rail& rail, std::uint64_t bytes) const;
  bool is_usable(const Rail& rail, base::TimePoint now) const;
  double expected_seconds(const Rail& rail, std::uint64_t bytes) const;
  Decision dispatch(const Slice& slice, RailId rail, base::TimePoint now);
  void measure(Rail& rail, const OnTheWay& slice, base::TimePoint now) const;
  void punish(Rail& rail, const OnTheWay& slice, End end, base::TimePoint now) const;

  const Rules rules_;
  std::vector<Rail> rails_;
  RailId last_rail_ = 0;
  std::array<Class, kPriorities> classes_;
  std::size_t turn_ = kPriorities - 1;  // the class whose turn it is
  std::map<SliceId, Slice> waiting_;
  std::set<std::pair<base::TimePoint, SliceId>> deadlines_;  // of those that wait
  std::map<SliceId, OnTheWay> on_the_way_;
};

}  // namespace mooncake::transfer
