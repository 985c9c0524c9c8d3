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

// What the core must know.
struct Object {
  Effect grant;
  bool published = false;
  std::uint64_t writer = 0;
  std::uint64_t number = 0;
  TimePoint until{};  // of the grant or lease
  bool remove_wanted = false;
  std::vector<base::SegmentIncarnation> incarnations;  // of the grant
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
        return revoke(client, key);
      case 10:
      case 11:
        return locate(key);
      case 12:
      case 13:
      case 14:
        return exist(key);
      case 15:
      case 16:
        return remove(client, key, step.argument % 8 == 0);
      default:
        return repeat(step.argument);
    }
  }

  void check() const {
    const Result<void> sound = f.core.verify();
    if (!sound) RC_FAIL(sound.error().message());
    std::uint64_t published = 0;
    for (const auto& [key, object] : objects_)
      published += object.published;
    RC_ASSERT(f.core.totals().objects == published);
    RC_ASSERT(f.core.totals().open_grants == objects_.size() - published);
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
      const auto found = objects_.find(decision.key);
      RC_ASSERT(found != objects_.end());
      RC_ASSERT(found->second.grant.version == decision.version);
      if (decision.kind == except) continue;
      if (decision.kind == Kind::kEvicted) {
        // The least recently used of those without a lease.
        RC_ASSERT(found->second.until <= f.now);
        for (const std::string& other : order_) {
          if (other == decision.key) break;
          RC_ASSERT(objects_.at(other).until > f.now);
        }
      } else if (decision.kind == Kind::kGrantExpired) {
        RC_ASSERT(!found->second.published);
      } else {
        RC_ASSERT(decision.kind == Kind::kLost && found->second.published);
      }
      forget(decision.key);
    }
  }
  void forget(const std::string& key) {
    objects_.erase(key);
    order_.remove(key);
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
    for (const auto& [key, object] : objects_)
      RC_ASSERT(object.published || object.writer != client);
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

  void grant(std::uint64_t client, const std::string& key, std::uint8_t argument) {
    Sent sent = sending(CommandKind::kGrant, client, key);
    sent.item.size = 1 + argument % 40 * (kUnit / 3);
    sent.replicas = argument % 5 == 0 ? 2 : 1;
    const auto found = objects_.find(key);
    const bool exists =
        found != objects_.end() && (found->second.published || found->second.until > f.now);
    const Effect effect = send(sent);
    if (!clients_[client].mounted) {
      RC_ASSERT(effect.code == Code::kClientNotFound);
      return;
    }
    RC_ASSERT((effect.code == Code::kObjectExists) == exists);
    learn();
    if (exists) return;
    RC_ASSERT(objects_.count(key) == 0u);
    if (effect.code == Code::kNoSpace) return;
    RC_ASSERT(effect.code == Code::kOk);
    RC_ASSERT(effect.version > newest_);
    RC_ASSERT(effect.replicas >= 1 && effect.replicas <= sent.replicas);
    newest_ = effect.version;
    Object& object = objects_[key];
    object.grant = effect;
    object.writer = client;
    object.number = sent.number;
    object.until = f.now + options_.grant_ttl;
    object.incarnations = f.incarnations(effect);
  }

  Code expected_writer(std::uint64_t client, const std::string& key, Version version) {
    if (!clients_[client].mounted) return Code::kClientNotFound;
    const auto found = objects_.find(key);
    if (found == objects_.end()) return Code::kObjectNotFound;
    if (found->second.grant.version != version) return Code::kInvalidWrite;
    return found->second.writer == client ? Code::kOk : Code::kIllegalClient;
  }
  Version version_to_name(const std::string& key) {
    const auto found = objects_.find(key);
    if (found != objects_.end()) last_version_[key] = found->second.grant.version;
    return last_version_[key];
  }

  void publish(std::uint64_t client, const std::string& key, std::uint8_t argument) {
    Sent sent = sending(CommandKind::kPublish, client, key);
    sent.item.version = version_to_name(key);
    Code expected = expected_writer(client, key, sent.item.version);
    const auto found = objects_.find(key);
    if (found != objects_.end()) {
      sent.incarnations = found->second.incarnations;
      if (argument % 7 == 0) sent.incarnations.back() = base::SegmentIncarnation{};
    }
    const bool again = expected == Code::kOk && found->second.published;
    if (expected == Code::kOk && !again) expected = expected_replicas(found->second, sent);
    RC_ASSERT(send(sent).code == expected);
    learn(Kind::kPublished);
    if (expected != Code::kOk || again) return;
    found->second.published = true;
    found->second.until = f.now;
    use(key);
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

  void revoke(std::uint64_t client, const std::string& key) {
    Sent sent = sending(CommandKind::kRevoke, client, key);
    sent.item.version = version_to_name(key);
    Code expected = expected_writer(client, key, sent.item.version);
    if (expected == Code::kOk && objects_.at(key).published) expected = Code::kInvalidWrite;
    RC_ASSERT(send(sent).code == expected);
    learn(Kind::kRevoked);
    if (expected == Code::kOk) forget(key);
  }

  bool published(const std::string& key) const {
    const auto found = objects_.find(key);
    return found != objects_.end() && found->second.published;
  }
  void locate(const std::string& key) {
    const Effect effect = f.locate(key);
    RC_ASSERT(effect.code == (published(key) ? Code::kOk : Code::kObjectNotFound));
    if (effect.code != Code::kOk) return;
    Object& object = objects_.at(key);
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
    if (!published(key) || objects_.at(key).remove_wanted) return;
    objects_.at(key).until = f.now + options_.lease_ttl;
    use(key);
  }
  void remove(std::uint64_t client, const std::string& key, bool force) {
    Sent sent = sending(CommandKind::kRemove, client, key);
    sent.force = force;
    Code expected = Code::kOk;
    const auto found = objects_.find(key);
    if (!clients_[client].mounted) {
      expected = Code::kClientNotFound;
    } else if (found == objects_.end()) {
      expected = Code::kObjectNotFound;
    } else if (!found->second.published) {
      expected = Code::kReplicaNotReady;
    } else if (found->second.until > f.now && !force) {
      expected = Code::kObjectHasLease;
      found->second.remove_wanted = true;
    }
    RC_ASSERT(send(sent).code == expected);
    learn(Kind::kRemoved);
    if (expected == Code::kOk) forget(key);
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
  std::map<std::string, Object> objects_;
  std::list<std::string> order_;  // published, the least recently used first
  std::map<std::uint64_t, ModelClient> clients_;
  std::map<std::string, Version> last_version_;
  std::vector<Sent> history_;
  std::uint64_t numbers_ = 0;
  std::uint64_t incarnations_ = 0;
  Version newest_;
};

void run_all(const std::vector<Step>& steps) {
  CoreOptions options = test_options();
  options.lease_ttl = std::chrono::milliseconds(500);
  options.grant_ttl = std::chrono::seconds(3);
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
  EXPECT_TRUE(rc::check("core against a map", [&] { run_all(*steps); }));
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
      run_all(steps);
      failed = false;
    } catch (const rc::detail::CaseResult& result) {
      ADD_FAILURE() << "seed " << seed << ": " << result.description;
    }
    if (failed) return;
  }
}

}  // namespace
}  // namespace mooncake::store::master
