#include "store/master/segment_table.h"

#include <cassert>

#include "base/hash.h"

namespace mooncake::store::master {

Segment* SegmentTable::add(ClientId client, const SegmentAddress& address) {
  if (all_.size() >= kMaxSegments) return nullptr;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint16_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint16_t slot = free_slots_.front();
  free_slots_.pop_front();
  auto segment = std::make_unique<Segment>(address.size / memory::kExtentUnit);
  segment->handle = std::uint32_t{++slots_[slot].uses} << 16 | slot;
  segment->position = static_cast<std::uint32_t>(all_.size());
  segment->client = client;
  segment->address = address;
  segment->host_hash = host_hash(address.host.empty() ? address.name : address.host);
  segment->open_position = static_cast<std::uint32_t>(open_.size());
  all_.push_back(segment.get());
  open_.push_back(segment.get());
  by_host_[segment->host_hash].push_back(segment.get());
  by_id_.emplace(address.id, segment.get());
  by_name_[address.name].push_back(segment.get());
  ++sizes_[segment->allocator.capacity()];
  slots_[slot].segment = std::move(segment);
  return all_.back();
}

std::uint64_t SegmentTable::host_hash(std::string_view host) { return base::hash64(host, 0); }

void SegmentTable::leave(Segment& segment, std::uint64_t at) {
  if (!segment.leaving()) close(segment);
  segment.leaves_at = at;
}

void SegmentTable::close(Segment& segment) {
  open_[segment.open_position] = open_.back();
  open_[segment.open_position]->open_position = segment.open_position;
  open_.pop_back();
  const auto size = sizes_.find(segment.allocator.capacity());
  if (--size->second == 0) sizes_.erase(size);
}

void SegmentTable::remove(Segment& segment) {
  if (!segment.leaving()) close(segment);
  const auto slot = static_cast<std::uint16_t>(segment.handle);
  assert(slots_[slot].segment.get() == &segment);
  by_id_.erase(segment.address.id);
  const auto name = by_name_.find(segment.address.name);
  std::erase(name->second, &segment);
  if (name->second.empty()) by_name_.erase(name);
  all_[segment.position] = all_.back();
  all_[segment.position]->position = segment.position;
  all_.pop_back();
  const auto host = by_host_.find(segment.host_hash);
  std::erase(host->second, &segment);
  if (host->second.empty()) by_host_.erase(host);
  slots_[slot].segment.reset();
  free_slots_.push_back(slot);
}

const Segment* SegmentTable::find(std::uint32_t handle) const {
  const std::size_t slot = handle & 0xFFFF;
  if (slot >= slots_.size() || slots_[slot].uses != handle >> 16) return nullptr;
  return slots_[slot].segment.get();
}

Segment* SegmentTable::find(std::uint32_t handle) {
  return const_cast<Segment*>(std::as_const(*this).find(handle));
}

Segment* SegmentTable::find(const base::Uuid& id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::span<Segment* const> SegmentTable::all_named(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return {};
  return found->second;
}

Segment* SegmentTable::named(std::string_view name) const {
  const auto segments = all_named(name);
  return segments.empty() ? nullptr : segments.front();
}

std::span<Segment* const> SegmentTable::on_host(std::uint64_t host_hash) const {
  const auto found = by_host_.find(host_hash);
  if (found == by_host_.end()) return {};
  return found->second;
}

}  // namespace mooncake::store::master
