// Why: what became of a key. Changes nothing.
#include <algorithm>
#include <chrono>

#include "store/master/core_state.h"

namespace mooncake::store::master {

namespace {

using std::chrono::milliseconds;

// From `from` to `to`, in the core's ns; 0 when it is the other way round.
milliseconds between(std::uint64_t from, std::uint64_t to) {
  return milliseconds(from < to ? (to - from) / 1'000'000 : 0);
}

}  // namespace

std::string Core::State::segment_name(std::uint32_t handle) const {
  if (const Segment* segment = segments.find(handle)) return segment->address.name;
  const std::string* gone = events.gone_segment(handle);
  return gone == nullptr ? std::string() : *gone;
}

std::string Core::State::client_name(ClientId id) const {
  const Client* client = clients.find(id);
  return client == nullptr ? std::string() : client->name;
}

KeyReport Core::State::why(std::string_view key, std::size_t most_events, std::uint64_t at) const {
  KeyReport report;
  const std::uint32_t first = directory.find(directory.hash(key), key);
  if (first != kNoEntry) {
    if (directory[first].state == PutState::kPublished) {
      describe_published(directory[first], at, report);
    } else {
      report.state = KeyState::kWriting;
    }
    describe_writes(first, at, report);
  }
  list_events(key, most_events, at, report);
  return report;
}

void Core::State::describe_published(const Entry& entry, std::uint64_t at,
                                     KeyReport& report) const {
  report.state = KeyState::kPublished;
  report.version = entry.version.value();
  report.size = entry.size;
  for (std::size_t i = 0; i < entry.replicas; ++i)
    report.segments.push_back(segment_name(entry.placements[i].segment));
  report.soft_pinned = (entry.flags & kSoftPinned) != 0;
  report.hard_pinned = (entry.flags & kHardPinned) != 0;
  report.lease_left = between(at, entry.until);
}

// At most kMaxWritesOfOneKey of them.
void Core::State::describe_writes(std::uint32_t first, std::uint64_t at, KeyReport& report) const {
  const Entry* oldest = nullptr;
  for (std::uint32_t number = first; number != kNoEntry; number = directory[number].other) {
    const Entry& entry = directory[number];
    if (entry.state != PutState::kGranted) continue;
    ++report.open_writes;
    if (oldest == nullptr || entry.until < oldest->until) oldest = &entry;
  }
  if (oldest == nullptr) return;
  report.writer = client_name(oldest->writer);
  const auto ttl = static_cast<std::uint64_t>(options.grant_ttl.count());
  report.writing_for = between(oldest->until - std::min(ttl, oldest->until), at);
}

void Core::State::list_events(std::string_view key, std::size_t most, std::uint64_t at,
                              KeyReport& report) const {
  const EventRing::Found found = events.newest(directory.hash(key), most);
  report.more_events = found.more;
  for (const EventRing::Event& event : found.events) {
    KeyEvent& told = report.events.emplace_back();
    told.kind = event.kind;
    told.soft_pinned = event.soft_pinned;
    told.version = event.version.value();
    told.size = event.size;
    told.ago = between(event.at, at);
    told.segment = segment_name(event.segment);
    told.writer = client_name(event.writer);
  }
  report.remembered_events = events.size();
  report.has_forgotten = events.has_forgotten();
  report.remembered_for = events.size() == 0 ? milliseconds(0) : between(events.oldest_at(), at);
}

}  // namespace mooncake::store::master
