// Random commands against a map: the map knows every answer but where things lie and whether there
// is room, and learns of evictions and losses from the core's decisions, which it checks. verify()
// after each step. Repeated and late commands are among them. Failing sequences are shrunk.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <list>
#include <map>
#include <optional>
#include <string>

#include "base/random.h"
#include "store/master/core_fixture.h"

namespace mooncake::store::master {
namespace {

constexpr std::uint64_t kKeys = 8;
constexpr std::uint64_t kClients = 3;
constexpr std::uint64_t kSegmentUnits = 24;

struct Step {
  std::uint8_t kind = 0;
  std::uint8_t client = 0;
  std::uint8_t key = 0;
  std::uint8_t argument = 0;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{" << int{step.kind} << "," << int{step.client} << "," << int{step.key} << ","
             << int{step.argument} << "}";
}

// What the core must know of a published object or an open write.
struct Object {
  Effect grant;
  bool upsert = false;
  bool hard_pin = false;
  SoftPin soft_pin = SoftPin::kPreserve;  // that an open write asks for
  base::Duration soft_pin_ttl{};
  TimePoint pinned_until{};
  bool was_pinned = false;  // softly, so that its place in the order is not known
  std::uint64_t writer = 0;
  TimePoint until{};  // of the grant or lease
  bool remove_wanted = false;
  std::vector<base::SegmentIncarnation> incarnations;  // of the grant
};
struct Key {
  std::optional<Object> published;
  std::vector<Object> open;

  Object* find(Version version) {
    if (published && published->grant.version == version) return &*published;
    for (Object& object : open) {
      if (object.grant.version == version) return &object;
    }
    return nullptr;
  }
  void forget(Version version) {
    if (published && published->grant.version == version) return published.reset();
    std::erase_if(open, [&](const Object& object) { return object.grant.version == version; });
  }
};
struct ModelClient {
  bool mounted = false;
  std::uint64_t incarnation = 0;  // of its segment
  TimePoint seen{};
};
// A numbered command that was answered, to be sent again.
struct Sent {
  CommandKind kind{};
  std::uint64_t client = 0;
  std::uint64_t number = 0;
  std::string key;
  CommandItem item;
  std::vector<base::SegmentIncarnation> incarnations;
  Effect answer;
  std::uint32_t replicas = 1;
  GrantTerms terms;
  bool force = false;
};

class Model {
 public:
  explicit Model(CoreOptions options) : f(options), options_(options) { f.check = false; }

  void run(const Step& step) {
    f.now += std::chrono::milliseconds(step.argument % 16 * 25);
    const std::uint64_t client = 1 + step.client % kClients;
    const std::string key = "key" + std::to_string(step.key % kKeys);
    switch (step.kind % 20) {
      case 0:
        return mount(client, step.argument % 4 == 0);
      case 1:
        return unmount(client, step.argument);
      case 2:
        return heartbeat(client);
      case 3:
        return tick(step.argument);
      case 4:
      case 5:
      case 6:
        return grant(client, key, step.argument);
      case 7:
      case 8:
        return publish(client, key, step.argument);
      case 9:
        return revoke(client, key, step.argument);
      case 10:
      case 11:
        return locate(key);
      case 12:
      case 13:
      case 14:
        return exist(key);
      case 15:
        return remove(client, key, step.argument % 8 == 0);
      case 16:
        if (step.argument % 8 == 0) return sweep(client, step.argument);
        if (step.argument % 8 == 1) return leave(client, step.argument);
        return remove(client, key, step.argument % 8 == 2);
      default:
        return repeat(step.argument);
    }
  }

  void check() const {
    const Result<void> sound = f.core.verify();
    if (!sound) RC_FAIL(sound.error().message());
    std::uint64_t published = 0;
    std::uint64_t open = 0;
    std::uint64_t hard = 0;
    for (const auto& [name, key] : keys_) {
      published += key.published.has_value();
      open += key.open.size();
      hard += key.published && key.published->hard_pin;
    }
    RC_ASSERT(f.core.totals().objects == published);
    RC_ASSERT(f.core.totals().open_grants == open);
    RC_ASSERT(f.core.totals().hard_pinned_objects == hard);
  }

 private:
  using Kind = Decision::Kind;
  static ClientId id(std::uint64_t client) { return ClientId{client}; }

  Effect send(Sent sent) {
    Command command;
    command.kind = sent.kind;
    command.client = id(sent.client);
    command.sequence = sent.number;
    command.replicas = sent.replicas;
    command.terms = sent.terms;
    command.force = sent.force;
    sent.item.key = sent.key;
    sent.item.incarnations = sent.incarnations;
    command.items = {&sent.item, 1};
    f.decisions.clear();
    sent.answer = f.apply(command).front();
    const bool decided = sent.answer.code != Code::kBusy &&
                         sent.answer.code != Code::kSpaceInPreparation &&
                         sent.answer.code != Code::kClientNotFound;
    if (decided) history_.push_back(sent);
    return sent.answer;
  }
  Sent sending(CommandKind kind, std::uint64_t client, const std::string& key) {
    Sent sent;
    sent.kind = kind;
    sent.client = client;
    sent.number = ++numbers_;
    sent.key = key;
    return sent;
  }

  // Takes note of what the core did beyond its answer; `except` is what it was told to do.
  void learn(std::optional<Kind> except = std::nullopt) {
    for (const Decision& decision : f.decisions) {
      Key& key = keys_[decision.key];
      const Object* object = key.find(decision.version);
      RC_ASSERT(object != nullptr);
      if (decision.kind == except) continue;
      const bool published = key.published && &*key.published == object;
      if (decision.kind == Kind::kEvicted) {
        RC_ASSERT(published);
        check_victim(decision.key, *object);
      } else if (decision.kind == Kind::kGrantExpired) {
        RC_ASSERT(!published);
      } else {
        RC_ASSERT(decision.kind == Kind::kLost && published);
      }
      forget(decision.key, decision.version);
    }
  }
  bool may_go(const Object& object) const { return object.until <= f.now && !object.hard_pin; }
  bool is_leaving(const Placement& place) const {
    const SegmentAddress* address = f.core.segment(place.segment);
    if (address == nullptr) return false;
    for (const SegmentUse& use : f.core.segments()) {
      if (use.address.id == address->id) return use.leaving;
    }
    return false;
  }
  int replicas_leaving(const Object& object) const {
    int leaving = 0;
    for (std::size_t i = 0; i < object.grant.replicas; ++i)
      leaving += is_leaving(object.grant.placements[i]);
    return leaving;
  }
  // One of those that nothing holds, of Lru the least recently used; pinned ones when there are no
  // others.
  void check_victim(const std::string& victim, const Object& object) const {
    RC_ASSERT(may_go(object));
    RC_ASSERT(replicas_leaving(object) < object.grant.replicas);
    const bool pinned = object.pinned_until > f.now;
    if (!pinned && options_.eviction_policy != EvictionKind::kLru) return;
    for (const std::string& name : order_) {
      const Object& other = *keys_.at(name).published;
      if (name == victim && !pinned) break;
      if (name == victim || !may_go(other) || replicas_leaving(other) > 0) continue;
      RC_ASSERT(other.pinned_until > f.now || (!pinned && other.was_pinned) ||
                (!pinned && object.was_pinned));
    }
  }
  void forget(const std::string& key, Version version) {
    const auto found = keys_.find(key);
    found->second.forget(version);
    if (!found->second.published) order_.remove(key);
    if (!found->second.published && found->second.open.empty()) keys_.erase(found);
  }
  void use(const std::string& key) {
    order_.remove(key);
    order_.push_back(key);
  }

  void mount(std::uint64_t client, bool anew) {
    ModelClient& known = clients_[client];
    if (known.incarnation == 0 || !known.mounted || anew) known.incarnation = ++incarnations_;
    f.decisions.clear();
    const MountedSegment segment = Fixture::segment(client, kSegmentUnits, known.incarnation);
    RC_ASSERT(f.mount(id(client), {segment}) == Code::kOk);
    known.mounted = true;
    known.seen = f.now;
    learn();
  }
  void unmount(std::uint64_t client, std::uint8_t argument) {
    if (argument % 4 != 0) return;
    f.decisions.clear();
    RC_ASSERT(f.unmount(id(client)) == Code::kOk);
    clients_[client].mounted = false;
    learn();
    for (const auto& [name, key] : keys_) {
      for (const Object& object : key.open)
        RC_ASSERT(object.writer != client);
    }
  }
  void heartbeat(std::uint64_t client) {
    ModelClient& known = clients_[client];
    RC_ASSERT(f.heartbeat(id(client)) == (known.mounted ? Code::kOk : Code::kClientNotFound));
    known.seen = f.now;
  }
  void tick(std::uint8_t argument) {
    if (argument > 240) f.now += std::chrono::seconds(4);
    f.decisions.clear();
    f.tick(argument % 8 == 0 ? 2 : 4096);
    learn();
    for (auto& [client, known] : clients_) {
      // Only a client that has been silent for so long may be gone; which are is the core's word.
      if (known.mounted && f.now - known.seen >= options_.client_ttl) {
        known.mounted = f.heartbeat(id(client)) == Code::kOk;
        if (known.mounted) known.seen = f.now;
      }
    }
  }

  static GrantTerms terms_of(std::uint8_t argument) {
    GrantTerms terms;
    terms.upsert = argument % 2 == 0;
    terms.hard_pin = argument % 32 == 3;
    if (argument % 6 == 1) terms.soft_pin = SoftPin::kEnable;
    if (argument % 6 == 2) terms.soft_pin = SoftPin::kDisable;
    if (argument % 12 == 1) terms.soft_pin_ttl = std::chrono::milliseconds(argument * 8);
    return terms;
  }
  bool is_taken(const std::string& key, bool upsert) const {
    const auto found = keys_.find(key);
    if (found == keys_.end() || upsert) return false;
    bool taken = found->second.published.has_value();
    for (const Object& object : found->second.open)
      taken = taken || object.until > f.now;
    return taken;
  }

  void grant(std::uint64_t client, const std::string& key, std::uint8_t argument) {
    Sent sent = sending(CommandKind::kGrant, client, key);
    sent.item.size = 1 + argument % 40 * (kUnit / 3);
    sent.replicas = argument % 5 == 0 ? 2 : 1;
    sent.terms = terms_of(static_cast<std::uint8_t>(argument * 7 + sent.number));
    const bool taken = is_taken(key, sent.terms.upsert);
    const Effect effect = send(sent);
    if (!clients_[client].mounted) {
      RC_ASSERT(effect.code == Code::kClientNotFound);
      return;
    }
    RC_ASSERT((effect.code == Code::kObjectExists) == taken);
    learn();
    if (taken || effect.code == Code::kBusy || effect.code == Code::kNoSpace) return;
    RC_ASSERT(effect.code == Code::kOk);
    RC_ASSERT(effect.version > newest_);
    RC_ASSERT(effect.replicas >= 1 && effect.replicas <= sent.replicas);
    newest_ = effect.version;
    Object object;
    object.grant = effect;
    object.upsert = sent.terms.upsert;
    object.hard_pin = sent.terms.hard_pin;
    object.soft_pin = sent.terms.soft_pin;
    object.soft_pin_ttl = sent.terms.soft_pin_ttl.value_or(options_.soft_pin_ttl);
    object.writer = client;
    object.until = f.now + options_.grant_ttl;
    object.incarnations = f.incarnations(effect);
    keys_[key].open.push_back(object);
  }

  Code expected_writer(std::uint64_t client, const std::string& key, Version version) {
    if (!clients_[client].mounted) return Code::kClientNotFound;
    const auto found = keys_.find(key);
    if (found == keys_.end()) return Code::kObjectNotFound;
    const Object* object = found->second.find(version);
    if (object == nullptr) return Code::kInvalidWrite;
    return object->writer == client ? Code::kOk : Code::kIllegalClient;
  }
  // One of the key's, or the last one that was named.
  Version version_to_name(const std::string& key, std::uint8_t argument) {
    const auto found = keys_.find(key);
    if (found != keys_.end()) {
      const std::vector<Object>& open = found->second.open;
      const bool choose_open = !open.empty() && (argument % 8 != 0 || !found->second.published);
      const Object& object =
          choose_open ? open[argument / 8 % open.size()] : *found->second.published;
      last_version_[key] = object.grant.version;
    }
    return last_version_[key];
  }

  void publish(std::uint64_t client, const std::string& key, std::uint8_t argument) {
    Sent sent = sending(CommandKind::kPublish, client, key);
    sent.item.version = version_to_name(key, argument);
    Code expected = expected_writer(client, key, sent.item.version);
    const auto found = keys_.find(key);
    Object* object = found == keys_.end() ? nullptr : found->second.find(sent.item.version);
    if (object != nullptr) {
      sent.incarnations = object->incarnations;
      if (argument % 7 == 0) sent.incarnations.back() = base::SegmentIncarnation{};
    }
    const bool there = found != keys_.end() && found->second.published.has_value();
    const bool again = there && object == &*found->second.published;
    if (expected == Code::kOk && !again) {
      expected = there && !object->upsert ? Code::kObjectExists : expected_replicas(*object, sent);
    }
    RC_ASSERT(send(sent).code == expected);
    for (const Decision& decision : f.decisions) {
      RC_ASSERT(decision.kind == Kind::kPublished || decision.kind == Kind::kReplaced ||
                (decision.kind == Kind::kRevoked && expected == Code::kObjectExists));
    }
    if (expected == Code::kObjectExists) forget(key, sent.item.version);
    if (expected != Code::kOk || again) return;
    make_visible(key, found->second, *object);
  }
  void make_visible(const std::string& name, Key& key, Object object) {
    RC_ASSERT((f.count(Kind::kReplaced) == 1) == key.published.has_value());
    RC_ASSERT(f.count(Kind::kPublished) == 1);
    if (key.published) {
      object.hard_pin = object.hard_pin || key.published->hard_pin;
      object.pinned_until = key.published->pinned_until;
    }
    if (object.soft_pin == SoftPin::kEnable) object.pinned_until = f.now + object.soft_pin_ttl;
    if (object.soft_pin == SoftPin::kDisable) object.pinned_until = {};
    object.was_pinned = object.pinned_until > f.now;
    object.until = f.now;
    key.forget(object.grant.version);
    key.published = object;
    use(name);
  }
  Code expected_replicas(const Object& object, const Sent& sent) const {
    bool any = false;
    for (std::size_t i = 0; i < sent.incarnations.size(); ++i) {
      if (sent.incarnations[i] == base::SegmentIncarnation{}) continue;
      const SegmentAddress* address = f.core.segment(object.grant.placements[i].segment);
      if (address == nullptr || address->incarnation != sent.incarnations[i]) {
        return Code::kInvalidReplica;
      }
      any = true;
    }
    return any ? Code::kOk : Code::kInvalidReplica;
  }

  void revoke(std::uint64_t client, const std::string& key, std::uint8_t argument) {
    Sent sent = sending(CommandKind::kRevoke, client, key);
    sent.item.version = version_to_name(key, argument);
    Code expected = expected_writer(client, key, sent.item.version);
    if (expected == Code::kOk && published(key) &&
        keys_.at(key).published->grant.version == sent.item.version) {
      expected = Code::kInvalidWrite;
    }
    RC_ASSERT(send(sent).code == expected);
    learn(Kind::kRevoked);
    if (expected == Code::kOk) forget(key, sent.item.version);
  }

  bool published(const std::string& key) const {
    const auto found = keys_.find(key);
    return found != keys_.end() && found->second.published.has_value();
  }
  void locate(const std::string& key) {
    const Effect effect = f.locate(key);
    RC_ASSERT(effect.code == (published(key) ? Code::kOk : Code::kObjectNotFound));
    if (effect.code != Code::kOk) return;
    Object& object = *keys_.at(key).published;
    RC_ASSERT(effect.version == object.grant.version);
    RC_ASSERT(effect.size == object.grant.size);
    RC_ASSERT(effect.replicas > 0);
    for (std::size_t i = 0; i < effect.replicas; ++i) {
      RC_ASSERT(f.core.segment(effect.placements[i].segment) != nullptr);
    }
    object.remove_wanted = false;
    object.until = f.now + options_.lease_ttl;
    use(key);
  }
  void exist(const std::string& key) {
    RC_ASSERT(f.exist(key) == (published(key) ? Code::kOk : Code::kObjectNotFound));
    if (!published(key) || keys_.at(key).published->remove_wanted) return;
    keys_.at(key).published->until = f.now + options_.lease_ttl;
    use(key);
  }
  void remove(std::uint64_t client, const std::string& key, bool force) {
    Sent sent = sending(CommandKind::kRemove, client, key);
    sent.force = force;
    Code expected = Code::kOk;
    const auto found = keys_.find(key);
    if (!clients_[client].mounted) {
      expected = Code::kClientNotFound;
    } else if (found == keys_.end()) {
      expected = Code::kObjectNotFound;
    } else if (!found->second.published) {
      expected = Code::kReplicaNotReady;
    } else if (found->second.published->until > f.now && !force) {
      expected = Code::kObjectHasLease;
      found->second.published->remove_wanted = true;
    }
    RC_ASSERT(send(sent).code == expected);
    learn(Kind::kRemoved);
    if (expected == Code::kOk) forget(key, found->second.published->grant.version);
  }

  // From the beginning, as far as it gets.
  void sweep(std::uint64_t client, std::uint8_t argument) {
    Sent sent = sending(CommandKind::kSweep, client, "");
    sent.force = argument % 16 == 0;
    const std::map<std::string, Key> before = keys_;
    const Effect effect = send(sent);
    if (!clients_[client].mounted) {
      RC_ASSERT(effect.code == Code::kClientNotFound);
      return;
    }
    RC_ASSERT(effect.code == Code::kOk && effect.cursor == kSweepEnd);
    RC_ASSERT(effect.size == f.decisions.size());
    for (const auto& [name, key] : before) {
      if (!key.published || (key.published->until > f.now && !sent.force)) continue;
      forget(name, key.published->grant.version);
    }
    RC_ASSERT(f.count(Kind::kRemoved) == static_cast<int>(effect.size));
  }
  // The client's segment, which stays readable for a while.
  void leave(std::uint64_t client, std::uint8_t argument) {
    const ModelClient& known = clients_[client];
    if (!known.mounted) return;
    f.decisions.clear();
    f.grace = std::chrono::milliseconds(1 + argument * 10);
    const MountedSegment segment = Fixture::segment(client, kSegmentUnits, known.incarnation);
    RC_ASSERT(f.unmount(id(client), {segment}) == Code::kOk);
    f.grace = {};
    RC_ASSERT(f.decisions.empty());
  }

  // A message that arrives once more, however much later.
  void repeat(std::uint8_t argument) {
    if (history_.empty()) return;
    const std::size_t back = argument % std::min<std::size_t>(history_.size(), 64);
    const Sent sent = history_[history_.size() - 1 - back];
    const Effect again = send(sent);
    RC_ASSERT(f.decisions.empty());
    if (!clients_[sent.client].mounted) {
      RC_ASSERT(again.code == Code::kClientNotFound);
      return;
    }
    RC_ASSERT(again.code == sent.answer.code);
    RC_ASSERT(again.version == sent.answer.version);
    RC_ASSERT(again.replicas == sent.answer.replicas);
    RC_ASSERT(again.placements[0] == sent.answer.placements[0]);
  }

  Fixture f;
  const CoreOptions options_;
  std::map<std::string, Key> keys_;
  std::list<std::string> order_;  // published, the least recently used first
  std::map<std::uint64_t, ModelClient> clients_;
  std::map<std::string, Version> last_version_;
  std::vector<Sent> history_;
  std::uint64_t numbers_ = 0;
  std::uint64_t incarnations_ = 0;
  Version newest_;
};

void run_all(const std::vector<Step>& steps, std::uint64_t kind) {
  CoreOptions options = test_options();
  options.eviction_policy = kEvictionKinds[kind % std::size(kEvictionKinds)];
  options.lease_ttl = std::chrono::milliseconds(500);
  options.grant_ttl = std::chrono::seconds(3);
  options.soft_pin_ttl = std::chrono::seconds(4);
  options.client_ttl = std::chrono::seconds(6);
  options.eviction_high_watermark = 0.8;
  options.eviction_ratio = 0.2;
  Model model(options);
  for (const Step& step : steps) {
    model.run(step);
    model.check();
  }
}

}  // namespace
}  // namespace mooncake::store::master

namespace rc {
template <>
struct Arbitrary<mooncake::store::master::Step> {
  static Gen<mooncake::store::master::Step> arbitrary() {
    using mooncake::store::master::Step;
    return gen::build<Step>(gen::set(&Step::kind, gen::arbitrary<std::uint8_t>()),
                            gen::set(&Step::client, gen::arbitrary<std::uint8_t>()),
                            gen::set(&Step::key, gen::arbitrary<std::uint8_t>()),
                            gen::set(&Step::argument, gen::arbitrary<std::uint8_t>()));
  }
};
}  // namespace rc

namespace mooncake::store::master {
namespace {

TEST(CoreModel, RandomCommandsAgainstAMap) {
  const auto steps = rc::gen::scale(20.0, rc::gen::arbitrary<std::vector<Step>>());
  const auto kind = rc::gen::inRange<std::uint64_t>(0, std::size(kEvictionKinds));
  EXPECT_TRUE(rc::check("core against a map", [&] { run_all(*steps, *kind); }));
}

// Longer runs than shrinking can afford.
TEST(CoreModel, LongRuns) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    base::Random random(seed);
    std::vector<Step> steps(3000);
    for (Step& step : steps) {
      const std::uint64_t bits = random.next();
      step = {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8),
              static_cast<std::uint8_t>(bits >> 16), static_cast<std::uint8_t>(bits >> 24)};
    }
    bool failed = true;
    try {
      run_all(steps, seed);
      failed = false;
    } catch (const rc::detail::CaseResult& result) {
      ADD_FAILURE() << "seed " << seed << ": " << result.description;
    }
    if (failed) return;
  }
}

}  // namespace
}  // namespace mooncake::store::master
