// verify(): everything that is kept twice is compared, for tests and simulation.
#include <algorithm>
#include <string>
#include <unordered_map>

#include "store/master/core_state.h"

namespace mooncake::store::master {

namespace {

Result<void> expect(bool holds, std::string_view what) {
  if (!holds) return fail(Code::kInternal, what);
  return {};
}

bool is_candidate(const Entry& entry) { return (entry.flags & (kHardPinned | kLeaving)) == 0; }

}  // namespace

Result<void> Core::State::verify() const {
  MC_CHECK(directory.verify());
  MC_CHECK(verify_entries());
  MC_CHECK(verify_segments());
  MC_CHECK(verify_open_grants());
  MC_CHECK(verify_candidates(ordinary, false));
  MC_CHECK(verify_candidates(soft_pinned, true));
  return verify_clients();
}

Result<void> Core::State::verify_entries() const {
  std::uint64_t objects = 0;
  std::uint64_t grants = 0;
  std::uint64_t hard = 0;
  std::uint64_t kept = 0;
  std::uint64_t allocated = 0;
  Result<void> result;
  directory.for_each([&](std::uint32_t number, const Entry& entry) {
    result = verify_entry(number, entry);
    const std::uint64_t bytes = bytes_of(entry);
    allocated += bytes;
    (entry.state == PutState::kGranted ? grants : objects) += 1;
    if (entry.state == PutState::kPublished) {
      hard += (entry.flags & kHardPinned) != 0;
      if (!is_candidate(entry)) kept += bytes;
    }
    return result.has_value();
  });
  MC_CHECK(std::move(result));
  MC_CHECK(expect(objects == totals.objects, "number of objects is wrong"));
  MC_CHECK(expect(grants == totals.open_grants, "number of open grants is wrong"));
  MC_CHECK(expect(hard == totals.hard_pinned_objects && kept == kept_bytes,
                  "objects that are kept are wrong"));
  std::uint64_t aside = 0;
  MC_CHECK(verify_resting(aside));
  return expect(allocated + aside == totals.allocated_bytes, "allocated bytes are wrong");
}

Result<void> Core::State::verify_resting(std::uint64_t& bytes) const {
  std::uint64_t until = 0;
  std::unordered_map<std::uint64_t, std::size_t> vain;
  for (const Resting& each : resting) {
    if (each.cost_victims) ++vain[each.hash_high];
    const Segment* segment = segments.find(each.segment);
    MC_CHECK(expect(segment != nullptr && segment->allocator.in_use(each.extent) &&
                        segment->allocator.owner(each.extent) == kNoEntry,
                    "an extent that rests is another's"));
    MC_CHECK(expect(until <= each.until, "extents that rest are not in order"));
    until = each.until;
    bytes += segment->allocator.units(each.extent) * memory::kExtentUnit;
  }
  MC_CHECK(expect(vain == in_vain, "grants that were in vain are wrong"));
  std::size_t counted = 0;
  for (const Segment* segment : segments.all())
    counted += segment->resting;
  MC_CHECK(expect(counted == resting.size(), "segments count other extents that rest"));
  return expect(resting.size() == totals.resting_extents && resting.size() <= kMaxResting &&
                    bytes == resting_bytes,
                "number of extents that rest is wrong");
}

Result<void> Core::State::verify_candidates(const Candidates& candidates, bool soft) const {
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;
  std::uint64_t surely_held = 0;
  std::uint64_t leased = 0;
  bool ends = true;
  directory.for_each([&](std::uint32_t number, const Entry& entry) {
    if (entry.state != PutState::kPublished || !is_candidate(entry)) return true;
    if (((entry.flags & kSoftPinned) != 0) != soft) return true;
    ++objects;
    bytes += bytes_of(entry);
    if (entry.until > now) leased += bytes_of(entry);
    if (entry.until > now + lease_ns / 32 + 128) surely_held += bytes_of(entry);
    ends = !soft || soft_pin_ends.holds(entry.soft_pin_until, number);
    return ends;
  });
  MC_TRY(const std::uint64_t queued, candidates.policy->verify());
  MC_CHECK(expect(queued == objects, "eviction queue and directory differ in number"));
  MC_CHECK(
      expect(ends && (!soft || objects == totals.soft_pinned_objects), "a soft pin has no end"));
  MC_CHECK(expect(bytes == candidates.bytes, "bytes of objects are wrong"));
  const std::uint64_t held = candidates.held.held();
  return expect(surely_held <= held && held <= leased, "leased bytes are wrong");
}

Result<void> Core::State::verify_entry(std::uint32_t number, const Entry& entry) const {
  const bool is_open = entry.state == PutState::kGranted;
  MC_CHECK(expect(entry.version.valid() && entry.version <= Version(epoch, sequence),
                  "a version was never granted"));
  const bool first =
      directory.find({entry.hash_high, entry.hash_low}, directory.key(entry)) == number;
  MC_CHECK(expect(is_open || first, "a published object is not the first of its key"));
  MC_CHECK(expect(entry.size > 0 && entry.replicas > 0 && entry.replicas <= kMaxReplicas,
                  "an entry has no size or no replica"));
  for (std::size_t i = 0; i < entry.replicas; ++i) {
    if (entry.extents[i] == kNoExtent) {
      MC_CHECK(expect(is_open, "an object's replica has no extent"));
      continue;
    }
    const Segment* segment = segments.find(entry.placements[i].segment);
    MC_CHECK(expect(segment != nullptr, "a replica lies in a segment that is gone"));
    const SegmentAllocator& allocator = segment->allocator;
    const std::uint32_t extent = entry.extents[i];
    MC_CHECK(expect(allocator.in_use(extent) && allocator.owner(extent) == number &&
                        allocator.unit(extent) == entry.placements[i].unit &&
                        allocator.units(extent) == units_for(entry.size),
                    "directory and allocator disagree on an extent"));
    for (std::size_t other = 0; other < i; ++other) {
      MC_CHECK(expect(entry.placements[other].segment != entry.placements[i].segment ||
                          entry.extents[other] == kNoExtent,
                      "two replicas lie in one segment"));
    }
  }
  const bool pinned = (entry.flags & kSoftPinned) != 0;
  MC_CHECK(expect(is_open || pinned == (entry.soft_pin_until != 0), "a soft pin has no end"));
  const bool marked = (entry.flags & kLeaving) != 0;
  return expect(is_open || marked == lies_in_leaving(entry), "an object is wrongly kept or not");
}

Result<void> Core::State::verify_segments() const {
  std::uint64_t capacity = 0;
  std::uint64_t prepared = 0;
  std::uint64_t allocated = 0;
  for (const Segment* segment : segments.all()) {
    MC_CHECK(segment->allocator.verify());
    capacity += segment->allocator.capacity() * memory::kExtentUnit;
    prepared += segment->allocator.prepared() * memory::kExtentUnit;
    allocated += segment->allocator.allocated() * memory::kExtentUnit;
    const Client* client = clients.find_mounted(segment->client);
    MC_CHECK(expect(client != nullptr, "a segment's client is gone"));
    std::size_t named = 0;
    for (const std::uint32_t handle : client->segments)
      named += handle == segment->handle;
    MC_CHECK(expect(named == 1, "a segment's client does not know it"));
    MC_CHECK(expect(segments.find(segment->handle) == segment, "a segment is not at its handle"));
  }
  MC_CHECK(expect(segments.all().size() == totals.segments, "number of segments is wrong"));
  MC_CHECK(expect(
      segments.open().size() + leaving.size() == totals.segments &&
          std::all_of(leaving.begin(), leaving.end(),
                      [&](std::uint32_t handle) { return segments.find(handle)->leaving(); }),
      "leaving segments are wrong"));
  MC_CHECK(expect(capacity == totals.capacity_bytes, "capacity is wrong"));
  MC_CHECK(expect(prepared == totals.prepared_bytes, "prepared bytes are wrong"));
  return expect(allocated == totals.allocated_bytes, "an extent belongs to no entry");
}

Result<void> Core::State::verify_open_grants() const {
  std::uint64_t count = 0;
  std::uint32_t previous = kNoEntry;
  for (std::uint32_t number = open.first; number != kNoEntry;) {
    const Entry& entry = directory[number];
    MC_CHECK(expect(entry.state == PutState::kGranted && entry.queue.previous == previous &&
                        ++count <= totals.open_grants,
                    "list of open grants is broken"));
    MC_CHECK(expect(previous == kNoEntry || directory[previous].until <= entry.until,
                    "open grants are not in order"));
    const Client* writer = clients.find_mounted(entry.writer);
    MC_CHECK(expect(writer != nullptr, "an open grant has no writer"));
    const Outcomes::Outcome* outcome =
        writer->outcomes.known(writer->outcomes.whole(entry.open.number));
    MC_CHECK(expect(
        outcome != nullptr && outcome->state == Outcomes::State::kOpen && outcome->entry == number,
        "an open grant is not known by its number"));
    previous = number;
    number = entry.queue.next;
  }
  return expect(count == totals.open_grants && open.last == previous,
                "an open grant is not listed");
}

Result<void> Core::State::verify_clients() const {
  std::uint64_t segments_of_clients = 0;
  std::uint64_t seen = 0;
  for (const Client* client : clients.mounted) {
    MC_CHECK(expect(client->mounted && clients.find(client->id) == client, "a client is lost"));
    MC_CHECK(expect(client->seen >= seen, "clients are not in order"));
    seen = client->seen;
    segments_of_clients += client->segments.size();
  }
  for (const Client* client : clients.departed) {
    MC_CHECK(expect(!client->mounted && client->segments.empty(), "a departed client has memory"));
  }
  MC_CHECK(expect(clients.mounted.size() == totals.clients &&
                      clients.all.size() == totals.clients + clients.departed.size(),
                  "number of clients is wrong"));
  return expect(segments_of_clients == totals.segments, "a segment has no client");
}

}  // namespace mooncake::store::master
