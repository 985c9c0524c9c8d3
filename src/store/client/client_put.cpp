// Put and upsert: grant, data with record, publish; batched, and idempotent by numbered commands.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "mooncake/config.h"
#include "store/client/client_impl.h"

namespace mooncake::store {

namespace {

// Kept back from a put's deadline, so that a writer whose data is late can still give its room
// back.
base::Duration time_to_finish(base::Duration left) {
  return std::min<base::Duration>(left / 8, std::chrono::milliseconds(250));
}

// Grants of one object whose owners may refuse the data, or not be there to take it.
constexpr int kMostRefusedGrants = 256;

// Another owner, or another place, may take what this one did not.
bool worth_another_grant(Code code) {
  return code == Code::kBusy || code == Code::kUnreachable || code == Code::kConnectionLost;
}

std::uint64_t size_of(const PutItem& item) {
  std::uint64_t size = 0;
  for (ConstBytes part : item.parts)
    size += part.size();
  return size;
}

Result<void> wrong(std::string text) { return fail(Code::kInvalidArgument, std::move(text)); }

Result<void> check_soft_pin(const ReplicateConfig& config) {
  if (config.soft_pin > SoftPin::kDisable) {
    return wrong(fmt::format("soft_pin: {} is none of 0 (preserve), 1 (enable), 2 (disable)",
                             static_cast<int>(config.soft_pin)));
  }
  if (!config.soft_pin_ttl) return {};
  const std::int64_t ttl = config.soft_pin_ttl->count();
  if (config.soft_pin != SoftPin::kEnable) {
    return wrong(fmt::format("soft_pin_ttl: {} ms without soft_pin = enable", ttl));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max() - 1;
  if (ttl >= 0 && ttl <= kMost) return {};
  return wrong(fmt::format("soft_pin_ttl: {} ms is outside 0 to {} ms", ttl, kMost));
}

Result<void> check_groups(const ReplicateConfig& config, std::size_t items) {
  if (!config.group_ids) return {};
  if (config.group_ids->size() != items) {
    return wrong(fmt::format("group_ids: {} for {} objects", config.group_ids->size(), items));
  }
  for (const std::string& group : *config.group_ids) {
    if (group.size() <= kMaxKeyLength) continue;
    return wrong(fmt::format("group_ids: one has {} bytes, at most {} are allowed", group.size(),
                             kMaxKeyLength));
  }
  return {};
}

}  // namespace

Result<void> check_config(const ReplicateConfig& config, std::size_t items) {
  if (config.replica_num == 0) return wrong("replica_num: 0, at least 1 is needed");
  if (config.data_type > ObjectDataType::kGeneral) {
    return wrong(
        fmt::format("data_type: {} is not within 0 to 9", static_cast<int>(config.data_type)));
  }
  if (config.preferred_segments.size() > kMaxPreferred) {
    return wrong(fmt::format("preferred_segments: {}, at most {} are allowed",
                             config.preferred_segments.size(), kMaxPreferred));
  }
  for (const std::string& name : config.preferred_segments) {
    const std::string fault = base::name_fault(name, kMaxName);
    if (!fault.empty()) return wrong(fmt::format("preferred_segments: a name {}", fault));
  }
  MC_CHECK(check_soft_pin(config));
  return check_groups(config, items);
}

// What the messages of one call share.
struct ClientImpl::PutCall {
  std::span<const PutItem> items;
  const PutOptions& options;
  PutOutcome& outcome;
  TimePoint deadline{};
  bool refusal_explained = false;  // in outcome.why
};

// The items of one message that were granted, and the transfers that fill them.
struct ClientImpl::PutState {
  const PutCall& call;
  PlacedBatch placed{};                                   // one object for each of `asked`
  std::vector<std::size_t> asked{};                       // indexes into the call's items
  std::vector<std::vector<base::MutableBuffer>> parts{};  // by position in `asked`
  std::vector<memory::ExtentRecord> records{};
  std::vector<transfer::EngineRequest> requests{};
  std::vector<std::pair<std::size_t, std::size_t>> request_of{};  // request -> (asked, replica)
  std::vector<std::size_t> refused{};  // items whose owners took nothing; they have no grant
};

// How often the owners of one object's places have not taken it.
struct ClientImpl::Refusals {
  int busy = 0;
  int unreachable = 0;
  bool any() const { return busy + unreachable > 0; }
  bool too_many() const { return busy + unreachable >= kMostRefusedGrants; }
};

Task<PutOutcome> ClientImpl::put(std::span<const PutItem> items, PutOptions options,
                                 TimePoint deadline) {
  const CallUnderWay under_way(*this);
  const TimePoint begun = env_.now();
  std::vector<std::string_view> keys;
  keys.reserve(items.size());
  for (const PutItem& item : items)
    keys.push_back(item.key);
  PutOutcome outcome;
  Result<void> open = accept(keys, outcome.codes);
  if (open) open = check_config(options.config, items.size());
  if (!open) {
    outcome.codes.assign(items.size(), open.error().code());
    outcome.why = open.error().detail();
    co_return outcome;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (size_of(items[i]) == 0) outcome.codes[i] = Code::kInvalidArgument;
  }
  std::vector<std::pair<std::size_t, std::size_t>> messages;
  for_each_message(
      items.size(), [&](std::size_t i) { return keys[i]; },
      [&](std::size_t first, std::size_t size) { messages.emplace_back(first, size); });
  PutCall call{items, options, outcome, deadline};
  for (const auto& [first, size] : messages)
    co_await put_some(call, first, size);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (outcome.codes[i] == Code::kOk) {
      counters_.stored.add();
      counters_.put_bytes.add(size_of(items[i]));
    } else if (outcome.codes[i] != Code::kObjectExists) {
      counters_.put_failures.add();
    }
  }
  counters_.put_seconds.observe(std::chrono::duration<double>(env_.now() - begun).count());
  co_return outcome;
}

// One message's items. What finds no room because memory is still being prepared, or too many
// writers at its key, is asked for again, under new numbers, until the deadline; what its owner
// doesn't take, or isn't there to take, at once, so that it finds the room that is free.
Task<void> ClientImpl::put_some(PutCall& call, std::size_t first, std::size_t size) {
  std::vector<Code>& codes = call.outcome.codes;
  std::vector<std::size_t> left;
  for (std::size_t i = first; i < first + size; ++i) {
    if (codes[i] == Code::kOk) left.push_back(i);
  }
  const std::uint64_t interrupts = master_.interrupts();
  std::map<std::size_t, Refusals> refusals;
  while (!left.empty()) {
    const bool refused_only = co_await put_once(call, left, refusals);
    if (left.empty()) break;
    if (master_.interrupts() != interrupts) {
      for (const std::size_t i : left)
        codes[i] = Code::kCancelled;
      co_return;
    }
    const base::Duration pause =
        refused_only ? base::Duration{} : std::chrono::milliseconds(options_.grant_retry_ms);
    if (env_.now() + pause >= call.deadline) break;
    if (!refused_only) co_await env_.executor.sleep_for(pause);
  }
  for (const auto& [item, refused] : refusals)
    explain_refusals(call, item, refused);
}

// One grant for the items in `left`, in which those stay that are worth another one. True when all
// of these have been refused by their owners, and no time will help.
Task<bool> ClientImpl::put_once(PutCall& call, std::vector<std::size_t>& left,
                                std::map<std::size_t, Refusals>& refusals) {
  std::vector<Code>& codes = call.outcome.codes;
  PutState state{call};
  state.asked = std::exchange(left, {});
  std::vector<std::string_view> keys;
  std::vector<std::uint64_t> sizes;
  for (std::size_t i : state.asked) {
    keys.push_back(call.items[i].key);
    sizes.push_back(size_of(call.items[i]));
  }
  // Open until the writes are published or given back: the Master takes an open grant whose
  // number is no longer open for abandoned.
  const CommandNumbers::Open numbers(numbers_, keys.size());
  Result<PlacedBatch> placed = co_await grant(call, keys, sizes, numbers.numbers());
  if (!placed) {
    for (std::size_t i : state.asked) {
      codes[i] = placed.error().code();
      if (codes[i] != Code::kDeadlineExceeded) refusals.erase(i);
    }
    if (call.outcome.why.empty()) call.outcome.why = placed.error().detail();
    co_return false;
  }
  state.placed = std::move(*placed);
  if (call.outcome.why.empty()) call.outcome.why = state.placed.shortage;
  for (std::size_t a = 0; a < state.asked.size(); ++a) {
    const Code code = state.placed.objects[a].code;
    codes[state.asked[a]] = code == Code::kSpaceInPreparation ? Code::kNoSpace : code;
    if (code == Code::kSpaceInPreparation || code == Code::kBusy) left.push_back(state.asked[a]);
  }
  const bool refused_only = left.empty();
  co_await write_and_publish(state);
  for (std::size_t i : state.refused) {
    Refusals& refused = refusals[i];
    ++(codes[i] == Code::kBusy ? refused.busy : refused.unreachable);
    if (!refused.too_many()) left.push_back(i);
  }
  co_return refused_only;
}

// Of an item that has failed: what stood in its way, and what helps.
void ClientImpl::explain_refusals(PutCall& call, std::size_t item, const Refusals& refused) {
  Code& code = call.outcome.codes[item];
  const bool failed =
      code == Code::kNoSpace || code == Code::kDeadlineExceeded || worth_another_grant(code);
  if (!failed || !refused.any()) return;
  // The last grant found no room, or no time, only since those before it were refused.
  code = refused.busy > 0 ? Code::kBusy : Code::kUnreachable;
  std::string why = fmt::format("needs {}", format_size(size_of(call.items[item])));
  if (refused.busy > 0) {
    why += fmt::format(
        "; readers' pins stand in the way (grants refused: {}): let go of what pin() and "
        "get_pinned() gave, or give the pool more memory",
        refused.busy);
  }
  if (refused.unreachable > 0) {
    why += fmt::format(
        "; the owner of the room was not reached (grants: {}): the Master forgets one that is dead "
        "after client_ttl",
        refused.unreachable);
  }
  if (!std::exchange(call.refusal_explained, true)) call.outcome.why = std::move(why);
}

Task<Result<PlacedBatch>> ClientImpl::grant(const PutCall& call,
                                            std::span<const std::string_view> keys,
                                            std::span<const std::uint64_t> sizes, Numbers numbers) {
  net::Bytes body =
      encode_grant(id_, numbers, keys, sizes, call.options.config, call.options.upsert);
  Result<net::Bytes> reply =
      co_await master_.call(net::Method::kGrant, std::move(body), call.deadline);
  if (!reply) co_return fail(std::move(reply).error());
  Result<PlacedBatch> placed = decode_grant(*reply, keys.size());
  if (!placed) co_return placed;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (const auto& [segment, offset] : placed->objects[i].replicas) {
      if (sizes[i] > placed->segments[segment].size - offset) {
        co_return fail(Code::kProtocolError, "Master's grant is smaller than what was asked");
      }
    }
  }
  co_return placed;
}

void ClientImpl::plan_writes(PutState& state) {
  const std::size_t count = state.asked.size();
  state.parts.resize(count);
  state.records.resize(count);
  for (std::size_t a = 0; a < count; ++a) {
    const PlacedObject& object = state.placed.objects[a];
    if (object.code != Code::kOk) continue;
    const std::size_t i = state.asked[a];
    const PutItem& item = state.call.items[i];
    const PutOptions& options = state.call.options;
    for (ConstBytes part : item.parts) {
      // A write only reads its local side; slices of both directions share one type.
      state.parts[a].emplace_back(const_cast<std::byte*>(part.data()), part.size());
    }
    memory::ExtentRecord& record = state.records[a];
    record.version = object.version.value();
    record.size = size_of(item);
    record.key_length = static_cast<std::uint16_t>(item.key.size());
    record.kind = options.upsert ? memory::kUpsert : memory::kPut;
    if (options.config.group_ids && !(*options.config.group_ids)[i].empty()) {
      record.group = base::hash64((*options.config.group_ids)[i], 0);
    }
    record.replicas = static_cast<std::uint8_t>(object.replicas.size());
    for (std::size_t r = 0; r < object.replicas.size(); ++r) {
      const auto& [index, offset] = object.replicas[r];
      const SegmentAddress& segment = state.placed.segments[index];
      transfer::EngineRequest request;
      request.target = target(segment);
      request.key_given = true;
      request.slice.opcode = Opcode::kWrite;
      request.slice.local = state.parts[a];
      request.slice.remote = segment.base + offset;
      request.slice.length = record.size;
      request.slice.key = static_cast<memory::RegionKey>(segment.region_key);
      request.slice.guard = record.version;
      request.slice.extent = segment.base + offset;
      request.slice.record = &record;
      request.slice.record_key = item.key;
      state.requests.push_back(request);
      state.request_of.emplace_back(a, r);
    }
  }
}

Task<void> ClientImpl::write_and_publish(PutState& state) {
  plan_writes(state);
  if (state.requests.empty()) co_return;
  const TimePoint deadline = state.call.deadline;
  std::vector<Code>& outcomes = state.call.outcome.codes;
  const TimePoint data_deadline = deadline - time_to_finish(deadline - env_.now());
  co_await engine_.transfer(state.requests, data_deadline);

  // What arrived of each object; an older grant can't land after a younger one, so that a replica
  // whose fate is unknown may be given up.
  Finish publish, revoke, set_aside;
  for (std::size_t request = 0; request < state.requests.size();) {
    const std::size_t a = state.request_of[request].first;
    const PlacedObject& object = state.placed.objects[a];
    FinishItem item;
    item.key = state.call.items[state.asked[a]].key;
    item.version = object.version;
    Code failure = Code::kTransferFailed;
    bool any = false;
    for (; request < state.requests.size() && state.request_of[request].first == a; ++request) {
      const std::uint32_t segment = object.replicas[state.request_of[request].second].first;
      const Code code = state.requests[request].slice.code;
      const bool arrived = code == Code::kOk;
      item.arrived.push_back(arrived ? state.placed.segments[segment].incarnation
                                     : base::SegmentIncarnation{});
      any = any || arrived;
      if (!arrived && !worth_another_grant(failure)) failure = code;
    }
    if (any) {
      publish.add(std::move(item), state.asked[a]);
    } else {
      item.arrived.clear();
      (worth_another_grant(failure) ? set_aside : revoke).add(std::move(item), state.asked[a]);
      outcomes[state.asked[a]] = failure;
    }
  }
  co_await finish(net::Method::kPublish, publish, deadline);
  for (std::size_t i = 0; i < publish.items.size(); ++i)
    outcomes[publish.indexes[i]] = publish.codes[i];
  co_await finish(net::Method::kRevoke, revoke, deadline);
  co_await finish(net::Method::kRevoke, set_aside, deadline, true);
  // Another grant is asked for only when this one is known to have ended: it would be taken for
  // another writer's.
  for (std::size_t i = 0; i < set_aside.items.size(); ++i) {
    if (set_aside.codes[i] == Code::kOk) state.refused.push_back(set_aside.indexes[i]);
  }
}

Task<void> ClientImpl::finish(net::Method method, Finish& what, TimePoint deadline,
                              bool set_aside) {
  if (what.items.empty()) co_return;
  const CommandNumbers::Open numbers(numbers_, what.items.size());
  net::Bytes body = encode_finish(id_, numbers.numbers(), what.items, set_aside);
  Result<net::Bytes> reply = co_await master_.call(method, std::move(body), deadline);
  Result<std::vector<Code>> done = reply ? decode_codes(*reply, what.items.size())
                                         : Result<std::vector<Code>>(fail(reply.error()));
  what.codes.assign(what.items.size(), done ? Code::kOk : done.error().code());
  if (done) what.codes = std::move(*done);
}

}  // namespace mooncake::store
