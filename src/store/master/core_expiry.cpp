// Tick: what ends by itself, and eviction ahead of need.
#include <algorithm>

#include "store/master/core_state.h"

namespace mooncake::store::master {

void Core::State::tick(const Command& command) {
  const auto ttl = static_cast<std::uint64_t>(options.client_ttl.count());
  if (ticked && now - last_tick > ttl / 2) clients.grace_until = now + ttl;
  ticked = true;
  last_tick = now;
  std::size_t budget = std::max<std::size_t>(command.budget, 1);
  end_rests();
  expire_clients(budget);
  if (budget > 0) end_leaving(budget);
  if (budget > 0) expire_grants(budget);
  if (budget > 0) end_soft_pins(budget);
  if (budget > 0) evict_to_watermark(budget);
  effects->more = budget == 0;
}

// Each counts as one, and as one more for each object that goes with it.
void Core::State::expire_clients(std::size_t& budget) {
  if (now < clients.grace_until) return;
  const auto ttl = static_cast<std::uint64_t>(options.client_ttl.count());
  while (budget > 0 && !clients.mounted.empty()) {
    Client& client = *clients.mounted.front();
    if (now < client.seen + ttl) return;
    const std::uint64_t entries = directory.size();
    depart(client, KeyEventKind::kOwnerSilent);
    ++totals.expired_clients;
    budget -= std::min<std::size_t>(budget, 1 + entries - directory.size());
  }
}

// Counted as clients are.
void Core::State::end_leaving(std::size_t& budget) {
  for (std::size_t i = 0; i < leaving.size() && budget > 0;) {
    Segment& segment = *segments.find(leaving[i]);
    if (segment.leaves_at > now) {
      ++i;
      continue;
    }
    const std::uint64_t entries = directory.size();
    drop_segment(*clients.find_mounted(segment.client), segment, KeyEventKind::kSegmentUnmounted);
    budget -= std::min<std::size_t>(budget, 1 + entries - directory.size());
  }
}

// Allocated in segments that are not about to go anyway.
std::uint64_t Core::State::staying_bytes() const {
  std::uint64_t bytes = totals.allocated_bytes;
  for (const std::uint32_t handle : leaving)
    bytes -= segments.find(handle)->allocator.allocated() * memory::kExtentUnit;
  return bytes;
}

void Core::State::expire_grants(std::size_t& budget) {
  for (; budget > 0 && open.first != kNoEntry && directory[open.first].until <= now; --budget) {
    release_grant(open.first, KeyEventKind::kWriteTimedOut);
  }
}

void Core::State::evict_to_watermark(std::size_t& budget) {
  if (options.eviction_high_watermark >= 1) return;
  double capacity = static_cast<double>(totals.capacity_bytes);
  for (const std::uint32_t handle : leaving) {
    capacity -= static_cast<double>(segments.find(handle)->allocator.capacity()) *
                static_cast<double>(memory::kExtentUnit);
  }
  const auto high = static_cast<std::uint64_t>(capacity * options.eviction_high_watermark);
  if (!evicting_round && staying_bytes() > high) {
    evicting_round = true;
    ++totals.eviction_attempts;
  }
  if (!evicting_round) return;
  const double low = options.eviction_high_watermark - options.eviction_ratio;
  const auto target = static_cast<std::uint64_t>(capacity * std::max(low, 0.0));
  for (; budget > 0 && staying_bytes() > target; --budget) {
    // Those that are held now are for another round. Soft-pinned ones go for the high mark only.
    const std::uint32_t victim = next_victim(staying_bytes() > high);
    if (victim == kNoEntry) break;
    evict(victim, KeyEventKind::kEvictedAhead);
  }
  evicting_round = budget == 0;
}

void Core::State::release_grant(std::uint32_t number, KeyEventKind event) {
  note(event, directory[number]);
  const bool given_back =
      event == KeyEventKind::kWriteRevoked || event == KeyEventKind::kWriteOvertaken;
  if (!given_back) ++totals.expired_grants;
  unlink_open(number);
  erase(number);
}

void Core::State::release_grants_of(const Client& client) {
  for (std::uint32_t number = open.first; number != kNoEntry;) {
    const std::uint32_t next = directory[number].queue.next;
    if (directory[number].writer == client.id) {
      release_grant(number, KeyEventKind::kWriterLeft);
    }
    number = next;
  }
}

}  // namespace mooncake::store::master
