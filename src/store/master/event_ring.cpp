#include "store/master/event_ring.h"

#include <bit>

namespace mooncake::store::master {

EventRing::EventRing(std::size_t capacity) {
  if (capacity == 0) return;
  lists_.resize(std::bit_ceil(capacity));
  events_.reserve(lists_.size());  // touched as it fills
}

void EventRing::add(const Event& event) {
  if (lists_.empty()) return;
  const std::size_t mask = lists_.size() - 1;
  Event& place = events_.size() < lists_.size() ? events_.emplace_back() : events_[added_ & mask];
  place = event;
  std::uint64_t& newest = lists_[event.hash.low & mask];
  place.previous = newest;
  newest = ++added_;
}

EventRing::Found EventRing::newest(const base::Hash128& hash, std::size_t most) const {
  Found found;
  if (lists_.empty()) return found;
  std::uint64_t number = lists_[hash.low & (lists_.size() - 1)];
  // What has been overwritten ends a list: everything behind it is older still.
  for (std::size_t steps = 0; number + events_.size() > added_ && number != 0; ++steps) {
    const Event& event = numbered(number);
    const bool fits = event.hash == hash;
    if (steps == kMostSteps || (fits && found.events.size() == most)) {
      found.more = true;
      break;
    }
    if (fits) found.events.push_back(event);
    number = event.previous;
  }
  return found;
}

std::uint64_t EventRing::oldest_at() const {
  if (events_.empty()) return 0;
  return numbered(added_ - events_.size() + 1).at;
}

void EventRing::segment_gone(std::uint32_t handle, const std::string& name) {
  if (lists_.empty()) return;
  if (gone_.insert_or_assign(handle, name).second) gone_order_.push_back(handle);
  if (gone_order_.size() <= kMostGoneSegments) return;
  gone_.erase(gone_order_.front());
  gone_order_.pop_front();
}

const std::string* EventRing::gone_segment(std::uint32_t handle) const {
  const auto found = gone_.find(handle);
  return found == gone_.end() ? nullptr : &found->second;
}

std::size_t EventRing::memory_bytes() const {
  std::size_t bytes = events_.capacity() * sizeof(Event) + lists_.size() * sizeof(std::uint64_t);
  for (const auto& [handle, name] : gone_)
    bytes += sizeof handle * 2 + sizeof name + name.capacity();
  return bytes;
}

}  // namespace mooncake::store::master
