#include "store/master/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/text.h"
#include "net/message.h"
#include "store/master_generated.h"

namespace mooncake::store::master {

namespace {

using flatbuffers::FlatBufferBuilder;
using Index = flatbuffers::uoffset_t;
using net::count_of;

tl::unexpected<Error> malformed(std::string_view what) {
  return fail(Code::kInvalidArgument, fmt::format("malformed request: {}", what));
}

template <typename Table>
Result<const Table*> verified(base::ConstBuffer body) {
  if (const Table* table = net::verified_root<Table>(body)) return table;
  return malformed("it does not verify");
}

template <typename... Vectors>
Result<void> check_aligned(const Vectors*... vectors) {
  if (!net::are_aligned(vectors...)) return malformed("a vector is not aligned");
  return {};
}

Result<ClientId> client_of(std::uint64_t value) {
  if (value == 0) return malformed("client 0");
  return static_cast<ClientId>(value);
}

std::string_view text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : std::string_view(text->c_str(), text->size());
}

// Cuts the joined keys. An empty or over-long key is the core's to refuse, item by item.
template <typename Table>
Result<void> read_keys(const Table* table, Request& request) {
  const std::size_t count = count_of(table->key_lengths());
  if (count == 0) return malformed("no keys");
  if (count > kMaxBatch) return malformed(fmt::format("{} keys, at most {}", count, kMaxBatch));
  const char* bytes = nullptr;
  const std::size_t size = count_of(table->keys());
  if (size > 0) bytes = reinterpret_cast<const char*>(table->keys()->Data());
  request.items.resize(count);
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t length = table->key_lengths()->Get(static_cast<Index>(i));
    if (length > size - at) return malformed("keys end before their lengths do");
    request.items[i].key = std::string_view(bytes + at, length);
    at += length;
  }
  if (at != size) return malformed("bytes after the last key");
  return {};
}

template <typename Table>
Result<void> read_numbers(const Table* table, Request& request) {
  MC_TRY(request.command.client, client_of(table->client()));
  request.command.sequence = table->first_sequence();
  request.command.oldest_open = table->oldest_open();
  if (request.command.sequence == 0) return malformed("number 0");
  if (request.command.sequence > ~std::uint64_t{0} - kMaxBatch) return malformed("number too high");
  return {};
}

// Before anything is copied: many segments may point to one long text. `field` says which one it
// is.
Result<void> check_name(const flatbuffers::String* text, std::string_view field) {
  const std::string fault = base::name_fault(text_of(text), kMaxName);
  if (!fault.empty()) return malformed(fmt::format("{} {}", field, fault));
  return {};
}

Result<MountedSegment> read_segment(const wire::Segment& in) {
  if (in.id() == nullptr) return malformed("a segment without id");
  MC_CHECK(check_name(in.name(), "the name of a segment"));
  if (count_of(in.host()) > 0) {
    MC_CHECK(check_name(in.host(), "the host of a segment"));
  }
  MountedSegment segment;
  segment.address.name = text_of(in.name());
  segment.address.host = text_of(in.host());
  segment.address.id = {in.id()->high(), in.id()->low()};
  segment.address.incarnation = static_cast<base::SegmentIncarnation>(in.incarnation());
  segment.address.owner = static_cast<base::Incarnation>(in.owner());
  segment.address.base = in.base();
  segment.address.size = in.size();
  segment.address.region_key = in.region_key();
  segment.prepared = in.prepared();
  return segment;
}

Result<Request> parse_mount(base::ConstBuffer body) {
  MC_TRY(const wire::MountRequest* table, verified<wire::MountRequest>(body));
  Request request;
  request.command.kind = CommandKind::kMount;
  MC_TRY(request.command.client, client_of(table->client()));
  request.command.sequence = table->sequence();
  request.command.newest_epoch = static_cast<Epoch>(table->newest_epoch());
  MC_CHECK(check_name(table->client_name(), "the client's name"));
  request.command.client_name = text_of(table->client_name());
  if (count_of(table->segments()) > kMaxSegmentsPerMessage) return malformed("too many segments");
  for (std::size_t i = 0; i < count_of(table->segments()); ++i) {
    MC_TRY(MountedSegment segment, read_segment(*table->segments()->Get(static_cast<Index>(i))));
    request.segments.push_back(std::move(segment));
  }
  return request;
}

Result<Request> parse_unmount(base::ConstBuffer body) {
  MC_TRY(const wire::UnmountRequest* table, verified<wire::UnmountRequest>(body));
  MC_CHECK(check_aligned(table->segments(), table->incarnations()));
  Request request;
  request.command.kind = CommandKind::kUnmount;
  MC_TRY(request.command.client, client_of(table->client()));
  request.command.sequence = table->sequence();
  const std::size_t count = count_of(table->segments());
  if (count > kMaxSegmentsPerMessage) return malformed("too many segments");
  if (count_of(table->incarnations()) != count) return malformed("segments without incarnations");
  for (std::size_t i = 0; i < count; ++i) {
    const wire::Uuid* id = table->segments()->Get(static_cast<Index>(i));
    MountedSegment segment;
    segment.address.id = {id->high(), id->low()};
    segment.address.incarnation =
        static_cast<base::SegmentIncarnation>(table->incarnations()->Get(static_cast<Index>(i)));
    request.segments.push_back(std::move(segment));
  }
  request.command.grace = std::chrono::milliseconds(table->grace_ms());
  if (count == 0 && table->grace_ms() != 0) return malformed("a grace without segments");
  return request;
}

Result<Request> parse_heartbeat(base::ConstBuffer body) {
  MC_TRY(const wire::HeartbeatRequest* table, verified<wire::HeartbeatRequest>(body));
  MC_CHECK(check_aligned(table->prepared()));
  Request request;
  request.command.kind = CommandKind::kHeartbeat;
  MC_TRY(request.command.client, client_of(table->client()));
  request.command.sequence = table->sequence();
  request.command.newest_version = Version::from_value(table->newest_version());
  if (count_of(table->prepared()) > kMaxSegmentsPerMessage) return malformed("too many segments");
  for (std::size_t i = 0; i < count_of(table->prepared()); ++i) {
    const wire::Prepared* prepared = table->prepared()->Get(static_cast<Index>(i));
    MountedSegment segment;
    segment.address.id = {prepared->segment().high(), prepared->segment().low()};
    segment.address.incarnation = static_cast<base::SegmentIncarnation>(prepared->incarnation());
    segment.prepared = prepared->bytes();
    request.segments.push_back(std::move(segment));
  }
  return request;
}

constexpr std::uint32_t kNoTtl = 0xFFFFFFFF;  // soft_pin_ttl_ms: as the Master has it

Result<void> read_terms(const wire::GrantRequest* table, Request& request) {
  GrantTerms& terms = request.command.terms;
  terms.upsert = table->upsert();
  terms.hard_pin = table->hard_pin();
  terms.prefer_same_node = table->prefer_same_node();
  if (table->soft_pin() > wire::SoftPin::MAX) {
    return malformed(fmt::format("soft pin {}", static_cast<int>(table->soft_pin())));
  }
  terms.soft_pin = static_cast<SoftPin>(table->soft_pin());
  if (table->soft_pin_ttl_ms() != kNoTtl) {
    terms.soft_pin_ttl = std::chrono::milliseconds(table->soft_pin_ttl_ms());
  }
  if (table->data_type() > static_cast<int>(ObjectDataType::kGeneral)) {
    return malformed(fmt::format("data type {}", static_cast<int>(table->data_type())));
  }
  request.command.data_type = static_cast<ObjectDataType>(table->data_type());
  const std::size_t count = count_of(table->preferred_segments());
  if (count > kMaxPreferred) {
    return malformed(fmt::format("{} preferred segments, at most {}", count, kMaxPreferred));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const flatbuffers::String* name = table->preferred_segments()->Get(static_cast<Index>(i));
    MC_CHECK(check_name(name, "the name of a preferred segment"));
    request.preferred.push_back(text_of(name));
  }
  return {};
}

Result<Request> parse_grant(base::ConstBuffer body) {
  MC_TRY(const wire::GrantRequest* table, verified<wire::GrantRequest>(body));
  MC_CHECK(check_aligned(table->sizes()));
  Request request;
  request.command.kind = CommandKind::kGrant;
  MC_CHECK(read_numbers(table, request));
  MC_CHECK(read_keys(table, request));
  if (count_of(table->sizes()) != request.items.size()) return malformed("keys without sizes");
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    request.items[i].size = table->sizes()->Get(static_cast<Index>(i));
  }
  request.command.replicas = table->replicas();
  if (request.command.replicas == 0) return malformed("0 replicas");
  MC_CHECK(read_terms(table, request));
  return request;
}

Result<Request> parse_finish(base::ConstBuffer body, CommandKind kind) {
  MC_TRY(const wire::FinishRequest* table, verified<wire::FinishRequest>(body));
  MC_CHECK(check_aligned(table->versions(), table->segment_incarnations()));
  Request request;
  request.command.kind = kind;
  request.command.set_aside = kind == CommandKind::kRevoke && table->set_aside();
  MC_CHECK(read_numbers(table, request));
  MC_CHECK(read_keys(table, request));
  const std::size_t count = request.items.size();
  if (count_of(table->versions()) != count) return malformed("keys without versions");
  if (count_of(table->replica_counts()) != count) return malformed("keys without replica counts");
  const std::size_t given = count_of(table->segment_incarnations());
  request.incarnations.reserve(given);
  for (std::size_t i = 0; i < given; ++i) {
    request.incarnations.push_back(static_cast<base::SegmentIncarnation>(
        table->segment_incarnations()->Get(static_cast<Index>(i))));
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    CommandItem& item = request.items[i];
    item.version = base::Version::from_value(table->versions()->Get(static_cast<Index>(i)));
    const std::size_t replicas = table->replica_counts()->Get(static_cast<Index>(i));
    if (replicas > kMaxReplicas || replicas > given - at) return malformed("replica counts");
    item.incarnations = std::span(request.incarnations).subspan(at, replicas);
    at += replicas;
  }
  if (at != given) return malformed("incarnations after the last replica");
  return request;
}

Result<Request> parse_keys(base::ConstBuffer body, CommandKind kind) {
  MC_TRY(const wire::KeysRequest* table, verified<wire::KeysRequest>(body));
  Request request;
  request.command.kind = kind;
  MC_TRY(request.command.client, client_of(table->client()));
  MC_CHECK(read_keys(table, request));
  return request;
}

Result<Request> parse_remove(base::ConstBuffer body) {
  MC_TRY(const wire::RemoveRequest* table, verified<wire::RemoveRequest>(body));
  Request request;
  request.command.kind = CommandKind::kRemove;
  MC_CHECK(read_numbers(table, request));
  MC_CHECK(read_keys(table, request));
  request.command.force = table->force();
  return request;
}

Result<Request> parse_sweep(base::ConstBuffer body) {
  MC_TRY(const wire::SweepRequest* table, verified<wire::SweepRequest>(body));
  Request request;
  request.command.kind = CommandKind::kSweep;
  MC_CHECK(read_numbers(table, request));
  request.command.force = table->force();
  request.command.cursor = table->cursor();
  const std::size_t length = count_of(table->pattern());
  if (length > kMaxKeyLength) {
    return malformed(fmt::format("a pattern of {} bytes, at most {}", length, kMaxKeyLength));
  }
  request.items.resize(1);
  if (length > 0) {
    request.items[0].key =
        std::string_view(reinterpret_cast<const char*>(table->pattern()->Data()), length);
  }
  return request;
}

flatbuffers::Offset<wire::KeyEvent> add_event(FlatBufferBuilder& builder, const KeyEvent& event) {
  const auto segment = builder.CreateSharedString(event.segment);
  const auto writer = builder.CreateSharedString(event.writer);
  return wire::CreateKeyEvent(builder, static_cast<std::uint8_t>(event.kind), event.soft_pinned,
                              event.version, event.size,
                              static_cast<std::uint64_t>(event.ago.count()), segment, writer);
}

flatbuffers::Offset<wire::KeyReport> add_report(FlatBufferBuilder& builder,
                                                const KeyReport& report) {
  std::vector<flatbuffers::Offset<wire::KeyEvent>> events;
  for (const KeyEvent& event : report.events)
    events.push_back(add_event(builder, event));
  const auto event_vector = builder.CreateVector(events);
  const auto segments = builder.CreateVectorOfStrings(report.segments);
  const auto writer = builder.CreateSharedString(report.writer);
  return wire::CreateKeyReport(
      builder, static_cast<std::uint8_t>(report.state), report.version, report.size, segments,
      report.soft_pinned, report.hard_pinned, static_cast<std::uint64_t>(report.lease_left.count()),
      report.open_writes, writer, static_cast<std::uint64_t>(report.writing_for.count()),
      event_vector, report.more_events);
}

Result<Request> parse_by_method(net::Method method, base::ConstBuffer body) {
  switch (method) {
    case net::Method::kMount:
      return parse_mount(body);
    case net::Method::kUnmount:
      return parse_unmount(body);
    case net::Method::kHeartbeat:
      return parse_heartbeat(body);
    case net::Method::kGrant:
      return parse_grant(body);
    case net::Method::kPublish:
      return parse_finish(body, CommandKind::kPublish);
    case net::Method::kRevoke:
      return parse_finish(body, CommandKind::kRevoke);
    case net::Method::kLocate:
      return parse_keys(body, CommandKind::kLocate);
    case net::Method::kExist:
      return parse_keys(body, CommandKind::kExist);
    case net::Method::kRemove:
      return parse_remove(body);
    case net::Method::kSweep:
      return parse_sweep(body);
    default:
      return fail(Code::kNotSupported, "not a method of the Master");
  }
}

net::Bytes take(FlatBufferBuilder& builder) {
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return net::Bytes(begin, begin + builder.GetSize());
}

std::uint16_t wire_code(Code code) { return static_cast<std::uint16_t>(code); }

template <typename Value, typename Of>
flatbuffers::Offset<flatbuffers::Vector<Value>> add_column(FlatBufferBuilder& builder,
                                                           std::span<const Effect> effects, Of of) {
  Value* values = nullptr;
  const auto vector = builder.CreateUninitializedVector(effects.size(), &values);
  for (const Effect& effect : effects)
    *values++ = of(effect);
  return vector;
}

flatbuffers::Offset<flatbuffers::Vector<std::uint16_t>> add_codes(FlatBufferBuilder& builder,
                                                                  std::span<const Effect> effects) {
  return add_column<std::uint16_t>(builder, effects,
                                   [](const Effect& effect) { return wire_code(effect.code); });
}

// However long the names, and however many segments the objects of a batch lie in, a reply fits
// into a frame: two names and 160 bytes for each segment and its place in the reply.
static_assert(kMaxBatch * kMaxReplicas * (2 * kMaxName + 160) < net::kMaxControlPayload);

// The placements of all effects, and the segments that they lie in.
struct PlaceVectors {
  flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> versions;
  flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> counts;
  flatbuffers::Offset<flatbuffers::Vector<const wire::Location*>> locations;
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::Segment>>> segments;
};

PlaceVectors add_places(FlatBufferBuilder& builder, const Core& core,
                        std::span<const Effect> effects) {
  std::unordered_map<std::uint32_t, std::uint16_t> index_of;
  std::vector<std::uint32_t> used;
  std::vector<wire::Location> locations;
  for (const Effect& effect : effects) {
    for (std::size_t r = 0; r < effect.replicas; ++r) {
      const Placement& place = effect.placements[r];
      const auto [at, is_new] =
          index_of.try_emplace(place.segment, static_cast<std::uint16_t>(used.size()));
      if (is_new) used.push_back(place.segment);
      locations.emplace_back(at->second, place.offset());
    }
  }
  std::vector<flatbuffers::Offset<wire::Segment>> segments;
  for (std::uint32_t handle : used) {
    const SegmentAddress* a = core.segment(handle);
    static const SegmentAddress kGone;
    if (a == nullptr) a = &kGone;
    const auto name = builder.CreateString(a->name);
    const auto host = builder.CreateString(a->host);
    const wire::Uuid id(a->id.high, a->id.low);
    segments.push_back(
        wire::CreateSegment(builder, name, host, &id, static_cast<std::uint64_t>(a->incarnation),
                            static_cast<std::uint64_t>(a->owner), a->base, a->size, a->region_key));
  }
  PlaceVectors out;
  out.versions = add_column<std::uint64_t>(
      builder, effects, [](const Effect& effect) { return effect.version.value(); });
  out.counts = add_column<std::uint8_t>(builder, effects,
                                        [](const Effect& effect) { return effect.replicas; });
  out.locations = builder.CreateVectorOfStructs(locations);
  out.segments = builder.CreateVector(segments);
  return out;
}

std::uint32_t milliseconds(base::Duration duration) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

Result<Request> parse_request(net::Method method, base::ConstBuffer body) {
  MC_TRY(Request request, parse_by_method(method, body));
  // Last, when the vectors have come to rest: moving them keeps their elements in place.
  request.command.items = request.items;
  request.command.segments = request.segments;
  request.command.terms.preferred = request.preferred;
  return request;
}

Result<WhyQuestion> parse_why(base::ConstBuffer body) {
  MC_TRY(const wire::WhyRequest* table, verified<wire::WhyRequest>(body));
  if (count_of(table->key_lengths()) > kMaxWhyKeys) {
    return malformed(
        fmt::format("{} keys, at most {}", count_of(table->key_lengths()), kMaxWhyKeys));
  }
  Request request;
  MC_CHECK(read_keys(table, request));
  WhyQuestion question;
  for (const CommandItem& item : request.items) {
    if (item.key.empty() || item.key.size() > kMaxKeyLength) {
      return malformed(fmt::format("a key of {} bytes", item.key.size()));
    }
    question.keys.push_back(item.key);
  }
  question.most_events = std::min<std::size_t>(table->most_events(), kMaxWhyEvents);
  return question;
}

net::Bytes encode_mount_reply(const MountTerms& terms, std::span<const Effect> effects) {
  FlatBufferBuilder builder;
  const auto codes = add_codes(builder, effects);
  builder.Finish(wire::CreateMountReply(builder, static_cast<std::uint32_t>(terms.epoch),
                                        milliseconds(terms.client_ttl),
                                        milliseconds(terms.heartbeat), codes));
  return take(builder);
}

net::Bytes encode_heartbeat_reply(Epoch epoch) {
  FlatBufferBuilder builder;
  builder.Finish(wire::CreateHeartbeatReply(builder, static_cast<std::uint32_t>(epoch)));
  return take(builder);
}

net::Bytes encode_codes_reply(std::span<const Effect> effects) {
  FlatBufferBuilder builder;
  builder.Finish(wire::CreateCodesReply(builder, add_codes(builder, effects)));
  return take(builder);
}

net::Bytes encode_unmount_reply(std::span<const Effect> effects) {
  FlatBufferBuilder builder;
  builder.Finish(wire::CreateUnmountReply(builder, add_codes(builder, effects)));
  return take(builder);
}

net::Bytes encode_sweep_reply(const Effect& effect) {
  FlatBufferBuilder builder;
  builder.Finish(
      wire::CreateSweepReply(builder, wire_code(effect.code), effect.size, effect.cursor));
  return take(builder);
}

// However long the names, a reply fits into a frame.
static_assert(kMaxWhyKeys * ((kMaxWhyEvents + kMaxReplicas + 1) * (2 * kMaxName + 160)) <
              net::kMaxControlPayload);

net::Bytes encode_why_reply(std::span<const KeyReport> reports) {
  FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<wire::KeyReport>> tables;
  for (const KeyReport& report : reports)
    tables.push_back(add_report(builder, report));
  const auto vector = builder.CreateVector(tables);
  const KeyReport any = reports.empty() ? KeyReport() : reports.front();
  builder.Finish(wire::CreateWhyReply(
      builder, vector, any.remembered_events,
      static_cast<std::uint64_t>(any.remembered_for.count()), any.has_forgotten,
      static_cast<std::uint64_t>(any.master_uptime.count()), any.master_time));
  return take(builder);
}

net::Bytes encode_grant_reply(const Core& core, const Effects& effects) {
  FlatBufferBuilder builder;
  const auto codes = add_codes(builder, effects.items);
  const PlaceVectors places = add_places(builder, core, effects.items);
  const Shortage shortage = effects.shortage.value_or(Shortage{});
  builder.Finish(wire::CreateGrantReply(builder, codes, places.versions, places.counts,
                                        places.locations, places.segments, shortage.needed,
                                        shortage.evictable, shortage.held, shortage.pinned,
                                        shortage.unprepared, shortage.resting));
  return take(builder);
}

net::Bytes encode_locate_reply(const Core& core, const Effects& effects, base::Duration lease) {
  FlatBufferBuilder builder;
  const auto codes = add_codes(builder, effects.items);
  const auto sizes = add_column<std::uint64_t>(builder, effects.items,
                                               [](const Effect& effect) { return effect.size; });
  const PlaceVectors places = add_places(builder, core, effects.items);
  builder.Finish(wire::CreateLocateReply(builder, codes, sizes, places.versions, places.counts,
                                         places.locations, places.segments, milliseconds(lease)));
  return take(builder);
}

}  // namespace mooncake::store::master
