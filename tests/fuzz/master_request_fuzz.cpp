// What clients may send to the Master, through its parsers into its core: whatever comes, the
// core's sums stay true, and its answers can be encoded. The first byte says how the rest is read:
// as messages (method, length, body) like those on the wire, or as fields of commands, so that
// inputs get deep into the core. The core has a client with two small segments and a few objects.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "store/master/core.h"
#include "store/master/key_pattern.h"
#include "store/master/messages.h"

namespace mooncake::store::master {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

constexpr net::Method kMethods[] = {
    net::Method::kMount,   net::Method::kUnmount, net::Method::kHeartbeat, net::Method::kGrant,
    net::Method::kPublish, net::Method::kRevoke,  net::Method::kLocate,    net::Method::kExist,
    net::Method::kRemove,  net::Method::kSweep,   net::Method::kWhy};

// Takes bytes off the input; zeros when there are none left.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  std::uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  base::ConstBuffer bytes(std::size_t count) {
    count = std::min(count, size_);
    const auto taken = std::as_bytes(std::span(data_, count));
    data_ += count;
    size_ -= count;
    return taken;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

class World {
 public:
  World() : core_(options()) {
    std::vector<MountedSegment> segments = {segment(1, 1), segment(2, 1)};
    Command mount;
    mount.kind = CommandKind::kMount;
    mount.client = ClientId{1};
    mount.sequence = 1;
    mount.segments = segments;
    apply(mount);
  }

  static MountedSegment segment(std::uint8_t index, std::uint8_t incarnation) {
    MountedSegment mounted;
    mounted.address.name = "host" + std::to_string(index);
    mounted.address.host = "host" + std::to_string(index % 2);
    mounted.address.id = {index, 1};
    mounted.address.incarnation = base::SegmentIncarnation{incarnation};
    mounted.address.owner = base::Incarnation{1u + index % 4u};
    mounted.address.size = (1 + index % 7u) * 4 * memory::kExtentUnit;
    mounted.prepared = mounted.address.size / (1 + incarnation % 2u);
    return mounted;
  }

  // As the server does with one message.
  void message(Input& in) {
    const net::Method method = kMethods[in.byte() % std::size(kMethods)];
    const std::size_t length = in.byte() * 8u;
    const base::ConstBuffer taken = in.bytes(length == 0 ? SIZE_MAX : length);
    const net::Bytes body(taken.begin(), taken.end());
    if (method == net::Method::kWhy) return ask_why(body);
    const Result<Request> request = parse_request(method, body);
    if (!request) return;
    if (method == net::Method::kSweep && !KeyPattern::compile(request->items[0].key)) return;
    apply(request->command);
  }

  void ask_why(base::ConstBuffer body) {
    const Result<WhyQuestion> question = parse_why(body);
    if (!question) return;
    std::vector<KeyReport> reports;
    for (const std::string_view key : question->keys) {
      reports.push_back(core_.why(key, question->most_events, now_));
      require(reports.back().events.size() <= kMaxWhyEvents);
    }
    require(!encode_why_reply(reports).empty());
  }

  void command(Input& in) {
    static constexpr CommandKind kKinds[] = {
        CommandKind::kMount,  CommandKind::kUnmount, CommandKind::kHeartbeat, CommandKind::kGrant,
        CommandKind::kGrant,  CommandKind::kPublish, CommandKind::kPublish,   CommandKind::kRevoke,
        CommandKind::kLocate, CommandKind::kExist,   CommandKind::kRemove,    CommandKind::kTick,
        CommandKind::kSweep,  CommandKind::kDisown};
    Command command;
    command.kind = kKinds[in.byte() % std::size(kKinds)];
    const std::uint8_t who = in.byte();
    command.client = ClientId{1u + who % 3u};
    command.sequence = in.byte();
    command.oldest_open = who / 64u * command.sequence / 4;
    command.newest_epoch = Epoch{who % 8u};
    command.budget = 1 + who % 16u;
    command.replicas = who / 16u % 4u;
    command.force = who % 2 == 0;
    command.cursor = who / 2u;
    command.grace = std::chrono::seconds(who % 5u);
    command.terms.upsert = who % 4 == 1;
    command.terms.hard_pin = who % 16 == 3;
    command.terms.soft_pin = static_cast<SoftPin>(who / 4u % 3);
    if (who % 8 == 5) command.terms.soft_pin_ttl = std::chrono::seconds(who / 8u);
    command.terms.prefer_same_node = who % 32 == 7;
    const std::string_view preferred = "host1";
    if (who % 16 == 9) command.terms.preferred = {&preferred, 1};
    now_ += std::chrono::milliseconds(in.byte() * 20);
    const std::size_t count = 1 + in.byte() % 4u;
    std::vector<std::string> keys(count);
    std::vector<CommandItem> items(count);
    std::vector<MountedSegment> segments;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t choice = in.byte();
      keys[i] = std::string(choice % 8u, 'k');
      items[i].key = keys[i];
      items[i].size = choice * std::uint64_t{400};
      items[i].version = versions_.empty() ? base::Version() : versions_[choice % versions_.size()];
      incarnations_.resize(kMaxReplicas, base::SegmentIncarnation{1});
      items[i].incarnations = std::span(incarnations_).first(choice / 32u % (kMaxReplicas + 1));
      segments.push_back(segment(choice % 5u, 1 + choice / 64u));
    }
    const bool of_segments =
        command.kind <= CommandKind::kHeartbeat || command.kind == CommandKind::kDisown;
    if (of_segments && who < 200) command.segments = segments;
    if (!of_segments && command.kind != CommandKind::kTick) command.items = items;
    apply(command);
  }

  void check() {
    const Result<void> sound = core_.verify();
    require(sound.has_value());
  }

 private:
  static CoreOptions options() {
    CoreOptions options;
    options.epoch = Epoch{3};
    options.epoch_limit = Epoch{6};
    options.grant_ttl = std::chrono::seconds(5);
    options.eviction_high_watermark = 0.7;
    options.remembered_events = 16;
    return options;
  }

  void apply(const Command& command) {
    std::vector<Effect> arena(std::max(command.items.size(), command.segments.size()));
    Effects effects;
    effects.items = arena;
    core_.apply(command, now_, effects);
    for (const Effect& effect : arena) {
      require(effect.replicas <= kMaxReplicas);
      if (effect.version.valid() && versions_.size() < 64) versions_.push_back(effect.version);
    }
    for (const CommandItem& item : command.items) {
      const KeyReport report = core_.why(item.key, 4, now_);
      require(report.events.size() <= 4 && report.remembered_events <= 16);
      require(!encode_why_reply({&report, 1}).empty());
    }
    if (!arena.empty()) require(!encode_sweep_reply(arena.front()).empty());
    require(!encode_grant_reply(core_, effects).empty());
    require(!encode_locate_reply(core_, effects, {}).empty());
  }

  Core core_;
  TimePoint now_{};
  std::vector<base::Version> versions_;
  std::vector<base::SegmentIncarnation> incarnations_;
};

}  // namespace
}  // namespace mooncake::store::master

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mooncake::store::master::Input in(data, size);
  mooncake::store::master::World world;
  const bool wire = in.byte() % 2 == 0;
  for (int i = 0; i < 64 && !in.empty(); ++i) {
    wire ? world.message(in) : world.command(in);
    world.check();
  }
  return 0;
}
