// Get: one question to the Master for the batch, then the bytes by generation. An extent that holds
// another version by now is asked for once more, and is then a miss.
#include <algorithm>

#include "store/client/client_impl.h"

namespace mooncake::store {

namespace {

// Bounds what a reader asks that is overtaken by upserts, or whose replicas fail one after another.
constexpr int kMostQuestions = 8;

}  // namespace

// What has been tried to read one object.
struct ClientImpl::Attempts {
  base::Version stale;             // the newest version that was not where it should be
  std::vector<base::Uuid> failed;  // segments
  bool has_failed(const SegmentAddress& segment) const {
    return std::find(failed.begin(), failed.end(), segment.id) != failed.end();
  }
};

// The objects of one message that are being read.
struct ClientImpl::GetState {
  PlacedBatch placed;
  std::vector<std::size_t> asked;  // positions of placed objects in the message
  std::vector<std::vector<base::MutableBuffer>> rooms;  // by position in `asked`
  std::vector<std::size_t> chosen;                      // replicas, likewise
  std::vector<Attempts> attempts;                       // by position in the message
  bool hurried = false;  // the last attempt's deadline was short, for the sake of other replicas
};

Task<Result<PlacedBatch>> ClientImpl::locate(std::span<const std::string_view> keys,
                                             TimePoint deadline) {
  net::Bytes body = encode_keys(id_, keys);
  Result<net::Bytes> reply = co_await master_.call(net::Method::kLocate, std::move(body), deadline);
  if (!reply) co_return fail(std::move(reply).error());
  co_return decode_locate(*reply, keys.size());
}

Task<std::vector<Located>> ClientImpl::locate_all(std::span<const std::string_view> keys,
                                                  TimePoint deadline) {
  const CallUnderWay call(*this);
  std::vector<Located> outcomes(keys.size());
  std::vector<Code> codes;
  Result<void> open = accept(keys, codes);
  std::vector<std::pair<std::size_t, std::size_t>> messages;
  for_each_message(
      keys.size(), [&](std::size_t i) { return keys[i]; },
      [&](std::size_t first, std::size_t size) { messages.emplace_back(first, size); });
  for (const auto& [first, size] : messages) {
    Result<PlacedBatch> placed = fail(Code::kNotReady);
    if (open) placed = co_await locate(keys.subspan(first, size), deadline);
    for (std::size_t i = 0; i < size; ++i) {
      Located& outcome = outcomes[first + i];
      outcome.code = placed ? placed->objects[i].code : placed.error().code();
      if (codes[first + i] != Code::kOk) outcome.code = codes[first + i];
      if (outcome.code != Code::kOk) continue;
      outcome.size = placed->objects[i].size;
      for (const auto& [index, offset] : placed->objects[i].replicas) {
        const SegmentAddress& segment = placed->segments[index];
        outcome.replicas.push_back({segment.name, segment.base + offset, outcome.size});
      }
    }
  }
  co_return outcomes;
}

Task<std::vector<GetOutcome>> ClientImpl::get(std::span<const GetItem> items, TimePoint deadline) {
  std::vector<std::string_view> keys;
  for (const GetItem& item : items)
    keys.push_back(item.key);
  RoomFor room = [items](std::size_t index, std::uint64_t size) {
    std::vector<base::MutableBuffer> parts;
    for (MutableBytes part : items[index].parts) {
      if (size == 0) break;
      parts.push_back(part.first(std::min<std::uint64_t>(part.size(), size)));
      size -= parts.back().size();
    }
    if (size > 0) parts.clear();
    return parts;
  };
  co_return co_await get_all(std::move(keys), std::move(room), deadline);
}

Task<std::vector<GetOutcome>> ClientImpl::get(std::span<const std::string_view> keys,
                                              Allocate allocate, TimePoint deadline) {
  RoomFor room = [allocate = std::move(allocate)](std::size_t index, std::uint64_t size) {
    std::vector<base::MutableBuffer> parts;
    base::MutableBuffer place = allocate(index, size);
    if (place.size() >= size) parts.push_back(place.first(size));
    return parts;
  };
  std::vector<std::string_view> all(keys.begin(), keys.end());
  co_return co_await get_all(std::move(all), std::move(room), deadline);
}

Task<std::vector<GetOutcome>> ClientImpl::get_all(std::vector<std::string_view> keys, RoomFor room,
                                                  TimePoint deadline) {
  const CallUnderWay call(*this);
  const TimePoint begun = env_.now();
  std::vector<GetOutcome> outcomes(keys.size());
  std::vector<Code> codes;
  if (Result<void> open = accept(keys, codes); !open) {
    for (GetOutcome& outcome : outcomes)
      outcome.code = open.error().code();
    co_return outcomes;
  }
  for (std::size_t i = 0; i < keys.size(); ++i)
    outcomes[i].code = codes[i];
  std::vector<std::pair<std::size_t, std::size_t>> messages;
  for_each_message(
      keys.size(), [&](std::size_t i) { return keys[i]; },
      [&](std::size_t first, std::size_t size) { messages.emplace_back(first, size); });
  for (const auto& [first, size] : messages) {
    co_await get_some(std::span(keys).subspan(first, size), first, room,
                      std::span(outcomes).subspan(first, size), deadline);
  }
  for (const GetOutcome& outcome : outcomes) {
    (outcome.code == Code::kOk ? counters_.hits : counters_.misses).add();
    if (outcome.code == Code::kOk) counters_.get_bytes.add(outcome.size);
  }
  counters_.get_seconds.observe(std::chrono::duration<double>(env_.now() - begun).count());
  co_return outcomes;
}

Task<void> ClientImpl::get_some(std::span<const std::string_view> keys, std::size_t first,
                                const RoomFor& room, std::span<GetOutcome> outcomes,
                                TimePoint deadline) {
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (outcomes[i].code == Code::kOk) left.push_back(i);
  }
  GetState state;
  state.attempts.resize(keys.size());
  for (int question = 0; question < kMostQuestions && !left.empty(); ++question) {
    std::vector<std::string_view> asked_keys;
    for (std::size_t i : left)
      asked_keys.push_back(keys[i]);
    Result<PlacedBatch> placed = co_await locate(asked_keys, deadline);
    if (!placed) {
      for (std::size_t i : left) {
        outcomes[i].code = placed.error().code();
        outcomes[i].answered = false;
      }
      counters_.unanswered.add(left.size());
      co_return;
    }
    state.placed = std::move(*placed);
    state.asked = std::move(left);
    left.clear();
    state.rooms.assign(state.asked.size(), {});
    for (std::size_t a = 0; a < state.asked.size(); ++a) {
      PlacedObject& object = state.placed.objects[a];
      if (object.code != Code::kOk) continue;
      state.rooms[a] = room(first + state.asked[a], object.size);
      if (state.rooms[a].empty()) object.code = Code::kInvalidArgument;
    }
    co_await read_found(state, deadline);
    for (std::size_t a = 0; a < state.asked.size(); ++a) {
      const PlacedObject& object = state.placed.objects[a];
      const std::size_t i = state.asked[a];
      outcomes[i].code = is_stale(object.code) ? Code::kObjectNotFound : object.code;
      outcomes[i].size = object.size;
      outcomes[i].answered = true;
      if (is_stale(object.code)) counters_.stale_reads.add();
      if (is_worth_another(state, a) && env_.now() < deadline) left.push_back(i);
    }
  }
}

// Takes note of how the reading of an object ended, and says whether to ask for it once more: when
// it may have moved, when another replica has not been tried, or when there had been little time.
bool ClientImpl::is_worth_another(GetState& state, std::size_t a) const {
  const PlacedObject& object = state.placed.objects[a];
  if (object.code == Code::kOk || code_info(object.code).domain == Domain::kStore) return false;
  if (state.chosen[a] >= object.replicas.size()) return false;
  Attempts& attempts = state.attempts[state.asked[a]];
  if (is_stale(object.code) && attempts.stale < object.version) {
    attempts.stale = object.version;
    return true;
  }
  const bool cut_short = state.hurried && object.code == Code::kDeadlineExceeded;
  const bool others = has_other(state.placed, object, attempts, state.chosen[a]);
  if (cut_short && !others) return true;
  const std::uint32_t segment = object.replicas[state.chosen[a]].first;
  attempts.failed.push_back(state.placed.segments[segment].id);
  return others;
}

bool ClientImpl::has_other(const PlacedBatch& batch, const PlacedObject& object,
                           const Attempts& attempts, std::size_t chosen) {
  for (std::size_t r = 0; r < object.replicas.size(); ++r) {
    const SegmentAddress& segment = batch.segments[object.replicas[r].first];
    if (r != chosen && !attempts.has_failed(segment)) return true;
  }
  return false;
}

// Its own segment, then one of its host, then any, so that readers spread over them; the number of
// replicas when all have failed.
std::size_t ClientImpl::choose_replica(const PlacedBatch& batch, const PlacedObject& object,
                                       const Attempts& attempts) const {
  const std::size_t count = object.replicas.size();
  const std::size_t start = count > 1 ? object.version.value() % count : 0;
  std::size_t best = count;
  int best_distance = 3;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t r = (start + i) % count;
    const SegmentAddress& segment = batch.segments[object.replicas[r].first];
    if (attempts.has_failed(segment)) continue;
    const bool own = segment.owner == engine_.identity().incarnation;
    const int distance = own ? 0 : segment.host == options_.host ? 1 : 2;
    if (distance < best_distance) {
      best = r;
      best_distance = distance;
    }
  }
  return best;
}

// All of the object, by its generation; without a place for the bytes.
transfer::Slice ClientImpl::read_slice(const PlacedBatch& batch, const PlacedObject& object,
                                       std::size_t replica) {
  const auto& [index, offset] = object.replicas[replica];
  const SegmentAddress& segment = batch.segments[index];
  transfer::Slice slice;
  slice.opcode = Opcode::kRead;
  slice.remote = slice.extent = segment.base + offset;
  slice.length = object.size;
  slice.key = static_cast<memory::RegionKey>(segment.region_key);
  slice.guard = static_cast<std::uint64_t>(base::complete(object.version));
  return slice;
}

// Reads all placed objects that have room; leaves each one's outcome in its code.
Task<void> ClientImpl::read_found(GetState& state, TimePoint deadline) {
  std::vector<transfer::EngineRequest> requests;
  std::vector<std::size_t> request_of;
  state.hurried = false;
  state.chosen.assign(state.asked.size(), kMaxReplicas);
  for (std::size_t a = 0; a < state.asked.size(); ++a) {
    PlacedObject& object = state.placed.objects[a];
    if (object.code != Code::kOk) continue;
    const Attempts& attempts = state.attempts[state.asked[a]];
    const std::size_t replica = choose_replica(state.placed, object, attempts);
    state.chosen[a] = replica;
    if (replica == object.replicas.size()) {
      object.code = Code::kTransferFailed;
      continue;
    }
    state.hurried = state.hurried || has_other(state.placed, object, attempts, replica);
    transfer::EngineRequest request;
    request.target = target(state.placed.segments[object.replicas[replica].first]);
    request.key_given = true;
    request.slice = read_slice(state.placed, object, replica);
    request.slice.local = state.rooms[a];
    requests.push_back(request);
    request_of.push_back(a);
  }
  if (requests.empty()) co_return;
  // Time for another replica is kept back.
  const base::Duration left = deadline - env_.now();
  co_await engine_.transfer(requests, state.hurried ? deadline - left / 2 : deadline);
  for (std::size_t r = 0; r < requests.size(); ++r) {
    state.placed.objects[request_of[r]].code = requests[r].slice.code;
  }
}

}  // namespace mooncake::store
