// Who may be evicted: published objects are candidates of one of two queues, or of none.
#include "store/master/core_state.h"

namespace mooncake::store::master {

Candidates* Core::State::candidates_of(const Entry& entry) {
  if ((entry.flags & (kHardPinned | kLeaving)) != 0) return nullptr;
  return (entry.flags & kSoftPinned) == 0 ? &ordinary : &soft_pinned;
}

// Published as of now, and held by nobody.
void Core::State::enter(std::uint32_t number) {
  const Entry& entry = directory[number];
  const std::uint64_t bytes = bytes_of(entry);
  Candidates* candidates = candidates_of(entry);
  if ((entry.flags & kHardPinned) != 0) ++totals.hard_pinned_objects;
  if (candidates == nullptr) {
    kept_bytes += bytes;
    return;
  }
  candidates->bytes += bytes;
  candidates->policy->on_publish(number);
  if (candidates == &ordinary) return;
  ++totals.soft_pinned_objects;
  note_pin_end(number);
}

void Core::State::note_pin_end(std::uint32_t number) {
  soft_pin_ends.add({directory[number].soft_pin_until, number}, totals.soft_pinned_objects,
                    [this](const PinEnds::End& end) { return is_pin_end(end); });
}

void Core::State::leave(std::uint32_t number) {
  const Entry& entry = directory[number];
  forget_bytes(entry, bytes_of(entry));
  Candidates* candidates = candidates_of(entry);
  if ((entry.flags & kHardPinned) != 0) --totals.hard_pinned_objects;
  if (candidates == nullptr) return;
  candidates->policy->on_remove(number);
  if (candidates == &soft_pinned) --totals.soft_pinned_objects;
}

void Core::State::forget_bytes(const Entry& entry, std::uint64_t bytes) {
  Candidates* candidates = candidates_of(entry);
  if (candidates == nullptr) {
    kept_bytes -= bytes;
    return;
  }
  candidates->held.remove(entry.until, bytes);
  candidates->bytes -= bytes;
}

// If it lies in leaving segments only by now.
void Core::State::note_leaving(std::uint32_t number) {
  Entry& entry = directory[number];
  if ((entry.flags & kLeaving) != 0 || !lies_in_leaving(entry)) return;
  leave(number);
  entry.flags |= kLeaving;
  enter(number);
}

bool Core::State::is_pin_end(const PinEnds::End& end) const {
  const Entry& entry = directory[end.entry];
  return entry.state == PutState::kPublished && entry.soft_pin_until == end.at;
}

// A pin whose object is leased ends with the lease: until then it makes no difference.
void Core::State::end_soft_pins(std::size_t& budget) {
  for (; budget > 0 && soft_pin_ends.any_by(now); --budget) {
    const PinEnds::End end = soft_pin_ends.take();
    if (!is_pin_end(end)) continue;
    Entry& entry = directory[end.entry];
    if (entry.until > now) {
      entry.soft_pin_until = entry.until;
      note_pin_end(end.entry);
      continue;
    }
    leave(end.entry);
    entry.soft_pin_until = 0;
    entry.flags &= static_cast<std::uint8_t>(~kSoftPinned);
    entry.until = now;
    enter(end.entry);
  }
}

std::uint64_t Core::State::evictable_bytes() const {
  return ordinary.evictable() + (options.evict_soft_pinned ? soft_pinned.evictable() : 0);
}

std::uint32_t Core::State::next_victim(bool soft_pinned_too) {
  std::size_t ends = 16;
  end_soft_pins(ends);
  const std::uint32_t victim = ordinary.policy->next_victim(now);
  if (victim != kNoEntry || !soft_pinned_too || !options.evict_soft_pinned) return victim;
  return soft_pinned.policy->next_victim(now);
}

void Core::State::evict(std::uint32_t victim, KeyEventKind event) {
  const Entry& entry = directory[victim];
  directory.prefetch_erase_behind(entry);
  if (entry.queue.next != kNoEntry) {
    const Entry& next = directory[entry.queue.next];
    events.prefetch({next.hash_high, next.hash_low});
  }
  ++totals.evicted_objects;
  totals.evicted_bytes += entry.size * entry.replicas;
  drop_published(victim, event);
}

}  // namespace mooncake::store::master
