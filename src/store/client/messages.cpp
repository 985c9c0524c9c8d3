#include "store/client/messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "mooncake/config.h"
#include "net/message.h"
#include "store/master_generated.h"
#include "store/why/explain.h"

namespace mooncake::store {

namespace {

using flatbuffers::FlatBufferBuilder;
using net::count_of;
using net::verified;

// Keys one after the other, and the lengths that cut them.
struct KeyVectors {
  flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes;
  flatbuffers::Offset<flatbuffers::Vector<std::uint16_t>> lengths;
};

template <typename Items, typename KeyOf>
KeyVectors add_keys(FlatBufferBuilder& builder, const Items& items, KeyOf key_of) {
  std::size_t total = 0;
  for (const auto& item : items)
    total += key_of(item).size();
  std::uint8_t* bytes = nullptr;
  KeyVectors out;
  out.bytes = builder.CreateUninitializedVector(total, &bytes);
  for (const auto& item : items) {
    const std::string_view key = key_of(item);
    bytes = std::copy(key.begin(), key.end(), bytes);
  }
  std::uint16_t* lengths = nullptr;
  out.lengths = builder.CreateUninitializedVector(items.size(), &lengths);
  for (const auto& item : items)
    *lengths++ = static_cast<std::uint16_t>(key_of(item).size());
  return out;
}

KeyVectors add_keys(FlatBufferBuilder& builder, std::span<const std::string_view> keys) {
  return add_keys(builder, keys, [](std::string_view key) { return key; });
}

wire::Uuid to_wire(const base::Uuid& id) { return wire::Uuid(id.high, id.low); }

flatbuffers::Offset<wire::Segment> add_segment(FlatBufferBuilder& builder, const OwnSegment& own) {
  const SegmentAddress& a = own.address;
  const auto name = builder.CreateString(a.name);
  const auto host = builder.CreateString(a.host);
  const wire::Uuid id = to_wire(a.id);
  return wire::CreateSegment(builder, name, host, &id, static_cast<std::uint64_t>(a.incarnation),
                             static_cast<std::uint64_t>(a.owner), a.base, a.size, a.region_key,
                             own.prepared);
}

Result<void> check_count(std::size_t got, std::size_t expected, std::string_view what) {
  if (got == expected) return {};
  return fail(Code::kProtocolError,
              fmt::format("Master's reply has {} {}, expected {}", got, what, expected));
}

Result<std::vector<Code>> read_codes(const flatbuffers::Vector<std::uint16_t>* codes,
                                     std::size_t expected) {
  MC_CHECK(check_count(count_of(codes), expected, "codes"));
  std::vector<Code> out;
  out.reserve(expected);
  for (std::size_t i = 0; i < expected; ++i)
    out.push_back(code_from_wire(codes->Get(static_cast<flatbuffers::uoffset_t>(i))));
  return out;
}

Result<std::vector<SegmentAddress>> read_segments(
    const flatbuffers::Vector<flatbuffers::Offset<wire::Segment>>* segments) {
  std::vector<SegmentAddress> out;
  out.reserve(count_of(segments));
  for (std::size_t i = 0; i < count_of(segments); ++i) {
    const wire::Segment* s = segments->Get(static_cast<flatbuffers::uoffset_t>(i));
    if (s->name() == nullptr || s->id() == nullptr || s->size() > kMaxSegment) {
      return fail(Code::kProtocolError, "Master's reply has a segment without name, id or size");
    }
    SegmentAddress a;
    a.name = s->name()->str();
    if (s->host() != nullptr) a.host = s->host()->str();
    a.id = {s->id()->high(), s->id()->low()};
    a.incarnation = static_cast<base::SegmentIncarnation>(s->incarnation());
    a.owner = static_cast<base::Incarnation>(s->owner());
    a.base = s->base();
    a.size = s->size();
    a.region_key = s->region_key();
    out.push_back(std::move(a));
  }
  return out;
}

// GrantReply and LocateReply share these fields.
template <typename Reply>
Result<PlacedBatch> read_placed(const Reply* reply, std::size_t expected) {
  MC_CHECK(check_count(count_of(reply->codes()), expected, "codes"));
  MC_CHECK(check_count(count_of(reply->versions()), expected, "versions"));
  MC_CHECK(check_count(count_of(reply->replica_counts()), expected, "replica counts"));
  if (!net::are_aligned(reply->versions(), reply->locations())) {
    return fail(Code::kProtocolError, "Master's reply has a vector that is not aligned");
  }
  PlacedBatch out;
  MC_TRY(out.segments, read_segments(reply->segments()));
  out.objects.resize(expected);
  std::size_t next = 0;
  for (std::size_t i = 0; i < expected; ++i) {
    const auto at = static_cast<flatbuffers::uoffset_t>(i);
    PlacedObject& object = out.objects[i];
    object.code = code_from_wire(reply->codes()->Get(at));
    object.version = base::Version::from_value(reply->versions()->Get(at));
    for (unsigned r = 0; r < reply->replica_counts()->Get(at); ++r, ++next) {
      if (next >= count_of(reply->locations())) {
        return fail(Code::kProtocolError, "Master's reply has fewer locations than it counts");
      }
      const wire::Location* place =
          reply->locations()->Get(static_cast<flatbuffers::uoffset_t>(next));
      if (place->segment() >= out.segments.size() ||
          place->offset() >= out.segments[place->segment()].size) {
        return fail(Code::kProtocolError, "Master's reply has a location outside its segments");
      }
      object.replicas.emplace_back(place->segment(), place->offset());
    }
    if (object.code == Code::kOk && object.replicas.empty()) {
      return fail(Code::kProtocolError, "Master's reply has an object without replicas");
    }
  }
  return out;
}

// A name as the Master has taken it from a client; empty where it knows none.
Result<std::string> read_name(const flatbuffers::String* name) {
  const std::string text = name == nullptr ? std::string() : name->str();
  if (text.empty() || base::name_fault(text, kMaxName).empty()) return text;
  return fail(Code::kProtocolError, "Master's reply has a name that is not one");
}

// What a number of milliseconds means at most: clocks of two machines, and no overflow.
std::chrono::milliseconds read_age(std::uint64_t ms) {
  constexpr std::uint64_t kCentury = std::uint64_t{100} * 366 * 86400 * 1000;
  return std::chrono::milliseconds(std::min(ms, kCentury));
}

Result<KeyEvent> read_event(const wire::KeyEvent& in) {
  KeyEvent event;
  const bool known = in.kind() <= kLastKeyEventKind;
  event.kind = known ? static_cast<KeyEventKind>(in.kind()) : KeyEventKind::kUnknown;
  event.soft_pinned = in.soft_pinned();
  event.version = in.version();
  event.size = in.size();
  event.ago = read_age(in.age_ms());
  MC_TRY(event.segment, read_name(in.segment()));
  MC_TRY(event.writer, read_name(in.writer()));
  return event;
}

Result<KeyReport> read_report(const wire::KeyReport& in, std::size_t most_events) {
  KeyReport report;
  if (in.state() > static_cast<int>(KeyState::kPublished)) {
    return fail(Code::kProtocolError, fmt::format("Master's reply has state {}", in.state()));
  }
  if (count_of(in.events()) > most_events || count_of(in.segments()) > kMaxReplicas) {
    return fail(Code::kProtocolError, "Master's reply has more than was asked for");
  }
  report.state = static_cast<KeyState>(in.state());
  report.version = in.version();
  report.size = in.size();
  for (std::size_t i = 0; i < count_of(in.segments()); ++i) {
    MC_TRY(std::string name, read_name(in.segments()->Get(static_cast<flatbuffers::uoffset_t>(i))));
    report.segments.push_back(std::move(name));
  }
  report.soft_pinned = in.soft_pinned();
  report.hard_pinned = in.hard_pinned();
  report.lease_left = read_age(in.lease_ms());
  report.open_writes = in.open_writes();
  MC_TRY(report.writer, read_name(in.writer()));
  report.writing_for = read_age(in.writing_ms());
  for (std::size_t i = 0; i < count_of(in.events()); ++i) {
    MC_TRY(KeyEvent event, read_event(*in.events()->Get(static_cast<flatbuffers::uoffset_t>(i))));
    report.events.push_back(std::move(event));
  }
  report.more_events = in.more_events();
  return report;
}

}  // namespace

net::Bytes encode_mount(ClientId client, std::uint64_t sequence, base::Epoch newest,
                        std::string_view name, std::span<const OwnSegment> segments) {
  FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<wire::Segment>> offsets;
  for (const OwnSegment& segment : segments)
    offsets.push_back(add_segment(builder, segment));
  const auto vector = builder.CreateVector(offsets);
  const auto text = builder.CreateString(name);
  builder.Finish(wire::CreateMountRequest(builder, static_cast<std::uint64_t>(client), sequence,
                                          static_cast<std::uint32_t>(newest), text, vector));
  return net::copy_of(builder);
}

net::Bytes encode_unmount(ClientId client, std::uint64_t sequence,
                          std::span<const OwnSegment> segments, base::Duration grace) {
  FlatBufferBuilder builder;
  std::vector<wire::Uuid> ids;
  std::vector<std::uint64_t> incarnations;
  for (const OwnSegment& segment : segments) {
    ids.push_back(to_wire(segment.address.id));
    incarnations.push_back(static_cast<std::uint64_t>(segment.address.incarnation));
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(grace).count();
  const auto id_vector = builder.CreateVectorOfStructs(ids);
  const auto incarnation_vector = builder.CreateVector(incarnations);
  builder.Finish(wire::CreateUnmountRequest(builder, static_cast<std::uint64_t>(client), sequence,
                                            id_vector, incarnation_vector,
                                            static_cast<std::uint32_t>(ms)));
  return net::copy_of(builder);
}

net::Bytes encode_heartbeat(ClientId client, std::uint64_t sequence, base::Version newest,
                            std::span<const OwnSegment> segments) {
  FlatBufferBuilder builder;
  std::vector<wire::Prepared> prepared;
  for (const OwnSegment& segment : segments) {
    prepared.emplace_back(to_wire(segment.address.id),
                          static_cast<std::uint64_t>(segment.address.incarnation),
                          segment.prepared);
  }
  const auto vector = builder.CreateVectorOfStructs(prepared);
  builder.Finish(wire::CreateHeartbeatRequest(builder, static_cast<std::uint64_t>(client), sequence,
                                              vector, newest.value()));
  return net::copy_of(builder);
}

net::Bytes encode_grant(ClientId client, Numbers numbers, std::span<const std::string_view> keys,
                        std::span<const std::uint64_t> sizes, const ReplicateConfig& config,
                        bool upsert) {
  FlatBufferBuilder builder;
  const KeyVectors vectors = add_keys(builder, keys);
  const auto size_vector = builder.CreateVector(sizes.data(), sizes.size());
  const auto preferred = builder.CreateVectorOfStrings(config.preferred_segments);
  wire::GrantRequestBuilder request(builder);
  request.add_client(static_cast<std::uint64_t>(client));
  request.add_first_sequence(numbers.first);
  request.add_oldest_open(numbers.oldest_open);
  request.add_keys(vectors.bytes);
  request.add_key_lengths(vectors.lengths);
  request.add_sizes(size_vector);
  request.add_replicas(config.replica_num);
  request.add_upsert(upsert);
  request.add_hard_pin(config.hard_pin);
  request.add_soft_pin(static_cast<wire::SoftPin>(config.soft_pin));
  if (config.soft_pin_ttl) {
    request.add_soft_pin_ttl_ms(static_cast<std::uint32_t>(config.soft_pin_ttl->count()));
  }
  request.add_prefer_same_node(config.prefer_same_node);
  request.add_data_type(static_cast<std::uint8_t>(config.data_type));
  request.add_preferred_segments(preferred);
  builder.Finish(request.Finish());
  return net::copy_of(builder);
}

net::Bytes encode_finish(ClientId client, Numbers numbers, std::span<const FinishItem> items,
                         bool set_aside) {
  FlatBufferBuilder builder;
  const KeyVectors keys = add_keys(builder, items, [](const FinishItem& i) { return i.key; });
  std::vector<std::uint64_t> versions, incarnations;
  std::vector<std::uint8_t> counts;
  for (const FinishItem& item : items) {
    versions.push_back(item.version.value());
    counts.push_back(static_cast<std::uint8_t>(item.arrived.size()));
    for (auto arrived : item.arrived)
      incarnations.push_back(static_cast<std::uint64_t>(arrived));
  }
  const auto version_vector = builder.CreateVector(versions);
  const auto count_vector = builder.CreateVector(counts);
  const auto incarnation_vector = builder.CreateVector(incarnations);
  builder.Finish(wire::CreateFinishRequest(
      builder, static_cast<std::uint64_t>(client), numbers.first, numbers.oldest_open, keys.bytes,
      keys.lengths, version_vector, count_vector, incarnation_vector, set_aside));
  return net::copy_of(builder);
}

net::Bytes encode_keys(ClientId client, std::span<const std::string_view> keys) {
  FlatBufferBuilder builder;
  const KeyVectors vectors = add_keys(builder, keys);
  builder.Finish(wire::CreateKeysRequest(builder, static_cast<std::uint64_t>(client), vectors.bytes,
                                         vectors.lengths));
  return net::copy_of(builder);
}

net::Bytes encode_remove(ClientId client, Numbers numbers, std::span<const std::string_view> keys,
                         bool force) {
  FlatBufferBuilder builder;
  const KeyVectors vectors = add_keys(builder, keys);
  builder.Finish(wire::CreateRemoveRequest(builder, static_cast<std::uint64_t>(client),
                                           numbers.first, numbers.oldest_open, vectors.bytes,
                                           vectors.lengths, force));
  return net::copy_of(builder);
}

net::Bytes encode_sweep(ClientId client, Numbers numbers, std::string_view pattern, bool force,
                        std::uint32_t cursor) {
  FlatBufferBuilder builder;
  const auto text =
      builder.CreateVector(reinterpret_cast<const std::uint8_t*>(pattern.data()), pattern.size());
  builder.Finish(wire::CreateSweepRequest(builder, static_cast<std::uint64_t>(client),
                                          numbers.first, numbers.oldest_open, text, force, cursor));
  return net::copy_of(builder);
}

net::Bytes encode_why(std::span<const std::string_view> keys, std::size_t most_events) {
  FlatBufferBuilder builder;
  const KeyVectors vectors = add_keys(builder, keys);
  builder.Finish(
      wire::CreateWhyRequest(builder, vectors.bytes, vectors.lengths,
                             static_cast<std::uint8_t>(std::min(most_events, kMaxWhyEvents))));
  return net::copy_of(builder);
}

Result<MountOutcome> decode_mount(base::ConstBuffer body, std::size_t expected) {
  MC_TRY(const wire::MountReply* reply, verified<wire::MountReply>(body, "Master\'s MountReply"));
  MountOutcome out;
  MC_CHECK(check_count(count_of(reply->codes()), expected, "codes"));
  out.epoch = static_cast<base::Epoch>(reply->epoch());
  out.heartbeat = std::chrono::milliseconds(reply->heartbeat_ms());
  for (std::size_t i = 0; i < expected; ++i) {
    out.codes.push_back(
        code_from_wire(reply->codes()->Get(static_cast<flatbuffers::uoffset_t>(i))));
  }
  return out;
}

Result<PlacedBatch> decode_grant(base::ConstBuffer body, std::size_t expected) {
  MC_TRY(const wire::GrantReply* reply, verified<wire::GrantReply>(body, "Master\'s GrantReply"));
  MC_TRY(PlacedBatch out, read_placed(reply, expected));
  if (reply->needed() != 0) {
    out.shortage = fmt::format(
        "needs {}, evictable {}, leased or being written {}, pinned {}, not yet prepared {}",
        format_size(reply->needed()), format_size(reply->evictable()), format_size(reply->held()),
        format_size(reply->pinned()), format_size(reply->unprepared()));
    if (reply->resting() != 0) {
      out.shortage += fmt::format(
          ", set aside {}, as readers have pinned it (let go of what pin() and get_pinned() gave) "
          "or "
          "its owner was not reached",
          format_size(reply->resting()));
    }
  }
  return out;
}

Result<PlacedBatch> decode_locate(base::ConstBuffer body, std::size_t expected) {
  MC_TRY(const wire::LocateReply* reply,
         verified<wire::LocateReply>(body, "Master\'s LocateReply"));
  MC_CHECK(check_count(count_of(reply->sizes()), expected, "sizes"));
  if (!net::are_aligned(reply->sizes())) {
    return fail(Code::kProtocolError, "Master's reply has a vector that is not aligned");
  }
  MC_TRY(PlacedBatch out, read_placed(reply, expected));
  for (std::size_t i = 0; i < expected; ++i) {
    PlacedObject& object = out.objects[i];
    object.size = reply->sizes()->Get(static_cast<flatbuffers::uoffset_t>(i));
    for (const auto& [segment, offset] : object.replicas) {
      if (object.size > out.segments[segment].size - offset) {
        return fail(Code::kProtocolError, "Master's reply has an object beyond its segment");
      }
    }
  }
  return out;
}

Result<SweepStep> decode_sweep(base::ConstBuffer body) {
  MC_TRY(const wire::SweepReply* reply, verified<wire::SweepReply>(body, "Master's SweepReply"));
  SweepStep step;
  step.code = code_from_wire(reply->code());
  step.removed = reply->removed();
  step.cursor = reply->cursor();
  return step;
}

Result<std::vector<KeyReport>> decode_why(base::ConstBuffer body,
                                          std::span<const std::string_view> keys,
                                          std::size_t most_events) {
  MC_TRY(const wire::WhyReply* reply, verified<wire::WhyReply>(body, "Master's WhyReply"));
  MC_CHECK(check_count(count_of(reply->reports()), keys.size(), "reports"));
  constexpr std::int64_t kLatest = std::int64_t{1} << 37;  // in the year 6325
  if (reply->unix_seconds() < 0 || reply->unix_seconds() > kLatest) {
    return fail(Code::kProtocolError, "Master's reply has a time that is none");
  }
  std::vector<KeyReport> reports;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    MC_TRY(
        KeyReport report,
        read_report(*reply->reports()->Get(static_cast<flatbuffers::uoffset_t>(i)), most_events));
    report.remembered_events = reply->remembered_events();
    report.remembered_for = read_age(reply->remembered_ms());
    report.has_forgotten = reply->has_forgotten();
    report.master_uptime = read_age(reply->uptime_ms());
    report.master_time = reply->unix_seconds();
    explain(keys[i], report);
    reports.push_back(std::move(report));
  }
  return reports;
}

Result<std::vector<Code>> decode_unmount(base::ConstBuffer body, std::size_t expected) {
  MC_TRY(const wire::UnmountReply* reply,
         verified<wire::UnmountReply>(body, "Master's UnmountReply"));
  return read_codes(reply->codes(), expected);
}

Result<std::vector<Code>> decode_codes(base::ConstBuffer body, std::size_t expected) {
  MC_TRY(const wire::CodesReply* reply, verified<wire::CodesReply>(body, "Master's CodesReply"));
  return read_codes(reply->codes(), expected);
}

}  // namespace mooncake::store
