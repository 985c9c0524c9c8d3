#include "transfer/selection/slice_scheduler.h"

#include <algorithm>
#include <cassert>

namespace mooncake::transfer {

namespace {

// Enough bytes to tell a rate; fewer tell the latency.
constexpr std::uint64_t kTellsRate = 256u << 10;
constexpr std::uint64_t kTellsLatency = 16u << 10;
constexpr std::uint64_t kQuantum = 1u << 20;  // bytes of credit for each weight and round

double seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }
base::Duration from_seconds(double value) {
  constexpr double kLongest = 86400;
  return std::chrono::duration_cast<base::Duration>(
      std::chrono::duration<double>(std::clamp(value, 0.0, kLongest)));
}

}  // namespace

RailId SliceScheduler::add_rail(Estimate expected) {
  rails_.emplace_back().state.estimate = expected;
  return static_cast<RailId>(rails_.size() - 1);
}

// Waiting.

void SliceScheduler::enqueue(const Slice& slice) {
  assert(!rails_.empty());
  const bool is_new = waiting_.emplace(slice.id, slice).second;
  assert(is_new);
  static_cast<void>(is_new);
  class_of(slice.priority).queue.push_back(slice.id);
  if (slice.deadline != base::TimePoint::max()) deadlines_.emplace(slice.deadline, slice.id);
}

void SliceScheduler::forget(std::map<SliceId, Slice>::iterator slice) {
  deadlines_.erase({slice->second.deadline, slice->first});
  waiting_.erase(slice);
}

bool SliceScheduler::withdraw(SliceId slice) {
  const auto found = waiting_.find(slice);
  if (found == waiting_.end()) return false;
  forget(found);
  return true;
}

std::optional<base::TimePoint> SliceScheduler::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

std::optional<SliceScheduler::Decision> SliceScheduler::expire(base::TimePoint now) {
  if (deadlines_.empty() || deadlines_.begin()->first > now) return std::nullopt;
  Decision decision;
  decision.slice = deadlines_.begin()->second;
  forget(waiting_.find(decision.slice));
  return decision;
}

// Choosing.

const SliceScheduler::Slice* SliceScheduler::front_of(Class& each) {
  while (!each.queue.empty()) {
    const auto found = waiting_.find(each.queue.front());
    if (found != waiting_.end()) return &found->second;
    each.queue.pop_front();  // withdrawn
  }
  each.credit = 0;  // who has nothing to send saves nothing up
  return nullptr;
}

// Deficit round robin: the class whose turn it is sends until its credit is short, then the next
// gets its share. Null when nothing waits.
SliceScheduler::Class* SliceScheduler::choose_class() {
  if (waiting_.empty()) return nullptr;
  for (;;) {
    Class& each = classes_[turn_];
    const Slice* const front = front_of(each);
    if (front && front->bytes <= each.credit) return &each;
    turn_ = (turn_ + kPriorities - 1) % kPriorities;  // urgent ones first
    Class& next = classes_[turn_];
    if (front_of(next)) next.credit += kQuantum * rules_.weights[turn_];
  }
}

bool SliceScheduler::has_room(const Rail& rail, std::uint64_t bytes) const {
  const RailState& state = rail.state;
  if (state.slices_on_the_way == 0) return true;
  return state.slices_on_the_way < rules_.window_slices &&
         state.bytes_on_the_way + bytes <= rules_.window_bytes;
}

// One that has failed carries one slice after its pause, and the rest when that has arrived.
bool SliceScheduler::is_usable(const Rail& rail, base::TimePoint now) const {
  return rail.state.failures == 0 || (!rail.on_probation && now >= rail.state.paused_until);
}

double SliceScheduler::expected_seconds(const Rail& rail, std::uint64_t bytes) const {
  const RailState& state = rail.state;
  return seconds(state.estimate.latency) +
         static_cast<double>(state.bytes_on_the_way + bytes) / state.estimate.bytes_per_second;
}

// Whose work is expected to be done first, even if it has no room now: then the slice waits.
// Without a usable rail, the one whose pause ends first.
std::optional<RailId> SliceScheduler::choose_rail(const Slice& slice, base::TimePoint now) const {
  std::optional<RailId> best;
  double best_score = 0;
  const auto look_at = [&](RailId id, double score) {
    if (id == last_rail_) score /= rules_.stay;
    if (best && score >= best_score) return;
    best = id;
    best_score = score;
  };
  for (const bool avoid : {true, false}) {
    for (RailId id = 0; id < rails_.size() && !(best && !avoid); ++id) {
      if (!is_usable(rails_[id], now) || (avoid && slice.avoid == id)) continue;
      look_at(id, expected_seconds(rails_[id], slice.bytes));
    }
    if (best) break;
  }
  if (best) return has_room(rails_[*best], slice.bytes) ? best : std::nullopt;
  const auto first = std::min_element(rails_.begin(), rails_.end(), [](auto& a, auto& b) {
    return a.state.paused_until < b.state.paused_until;
  });
  if (!has_room(*first, slice.bytes)) return std::nullopt;
  return static_cast<RailId>(first - rails_.begin());
}

std::optional<SliceScheduler::Decision> SliceScheduler::next(base::TimePoint now) {
  if (const auto late = expire(now)) return late;
  Class* const chosen = choose_class();
  if (!chosen) return std::nullopt;
  const Slice slice = *front_of(*chosen);
  const auto rail = choose_rail(slice, now);
  if (!rail) return std::nullopt;
  chosen->queue.pop_front();
  chosen->credit -= slice.bytes;
  forget(waiting_.find(slice.id));
  return dispatch(slice, *rail, now);
}

SliceScheduler::Decision SliceScheduler::dispatch(const Slice& slice, RailId id,
                                                  base::TimePoint now) {
  Rail& rail = rails_[id];
  Decision decision;
  decision.slice = slice.id;
  decision.goes = true;
  decision.rail = id;
  decision.patience = std::max(rules_.least_patience,
                               from_seconds(rules_.patience * expected_seconds(rail, slice.bytes)));
  OnTheWay& on_the_way = on_the_way_[slice.id];
  on_the_way.rail = id;
  on_the_way.bytes = slice.bytes;
  on_the_way.began = now;
  on_the_way.rail_had_moved = rail.moved;
  on_the_way.alone = rail.state.slices_on_the_way == 0;
  on_the_way.probe = rail.state.failures > 0;
  rail.on_probation |= on_the_way.probe;
  rail.state.bytes_on_the_way += slice.bytes;
  ++rail.state.slices_on_the_way;
  last_rail_ = id;
  return decision;
}

// Learning.

void SliceScheduler::finished(SliceId id, End end, base::TimePoint now) {
  const auto found = on_the_way_.find(id);
  assert(found != on_the_way_.end());
  const OnTheWay slice = found->second;
  on_the_way_.erase(found);
  Rail& rail = rails_[slice.rail];
  rail.state.bytes_on_the_way -= slice.bytes;
  --rail.state.slices_on_the_way;
  if (slice.probe) rail.on_probation = false;
  if (end == End::kDone) {
    measure(rail, slice, now);
  } else if (end != End::kCalledOff) {
    punish(rail, slice, end, now);
  }
}

// What the rail moved while this slice was on its way, of whatever slices, tells its rate; so those
// that share it don't look slow.
void SliceScheduler::measure(Rail& rail, const OnTheWay& slice, base::TimePoint now) const {
  rail.moved += slice.bytes;
  if (slice.began >= rail.last_failure) rail.state.failures = 0;
  const double took = seconds(now - slice.began);
  if (took <= 0) return;
  Estimate& estimate = rail.state.estimate;
  const std::uint64_t moved = rail.moved - slice.rail_had_moved;
  if (moved >= kTellsRate) {
    const double rate = static_cast<double>(moved) / took;
    estimate.bytes_per_second += rules_.newest * (rate - estimate.bytes_per_second);
  } else if (slice.alone && moved <= kTellsLatency) {
    const double latency = seconds(estimate.latency);
    estimate.latency = from_seconds(latency + rules_.newest * (took - latency));
  }
}

// Slices that were on the rail together fail together: that is one failure.
void SliceScheduler::punish(Rail& rail, const OnTheWay& slice, End end, base::TimePoint now) const {
  RailState& state = rail.state;
  if (end == End::kStuck) {
    const double took = std::max(seconds(now - slice.began), 1e-6);
    state.estimate.bytes_per_second = std::min(
        state.estimate.bytes_per_second, std::max(1.0, static_cast<double>(slice.bytes) / took));
  }
  if (state.failures > 0 && slice.began < rail.last_failure) return;
  rail.last_failure = now;
  constexpr std::uint32_t kMostDoublings = 20;
  const base::Duration pause =
      rules_.first_pause * (std::int64_t{1} << std::min(state.failures, kMostDoublings));
  state.paused_until = now + std::min(pause, rules_.longest_pause);
  ++state.failures;
}

}  // namespace mooncake::transfer
