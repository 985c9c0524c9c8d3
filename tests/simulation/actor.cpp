#include "actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mooncake::simulation {

namespace {

using base::Task;
using base::TimePoint;

constexpr std::size_t kLargestValue = 40'000;
constexpr std::size_t kOrdinaryValue = 9'000;
constexpr std::byte kUntouched{0xA5};
constexpr std::byte kOverwritten{0x5A};
constexpr std::size_t kKeptBuffers = 16;

}  // namespace

std::string Actor::some_key() { return fmt::format("key{}", random_.below(shared_.keys)); }

TimePoint Actor::some_deadline() {
  const std::uint64_t milliseconds = random_.chance(0.1) ? 1 + random_.below(20) : 2000;
  return life_.host.now() + std::chrono::milliseconds(milliseconds);
}

void Actor::returned(const char* what, TimePoint deadline, std::uint64_t freezes) {
  if (life_.freezes != freezes || life_.dead) return;
  const TimePoint now = life_.host.now();
  if (now > deadline + std::chrono::milliseconds(1)) {
    shared_.violations.push_back(
        fmt::format("{} returned {} us after its deadline", what,
                    std::chrono::duration_cast<std::chrono::microseconds>(now - deadline).count()));
  }
}

void Actor::keep(std::vector<std::byte> buffer) {
  if (kept_.size() == kKeptBuffers) forget_oldest();
  Kept kept;
  kept.live = std::move(buffer);
  std::fill(kept.live.begin(), kept.live.end(), kOverwritten);
  kept.copy = kept.live;
  kept_.push_back(std::move(kept));
}

void Actor::forget_oldest() {
  if (kept_.front().live != kept_.front().copy) {
    shared_.violations.push_back("a buffer was touched after its call had returned");
  }
  kept_.pop_front();
}

std::size_t Actor::some_size() {
  const std::size_t largest = random_.chance(0.2) ? kLargestValue : kOrdinaryValue;
  return kSmallestValue + random_.below(largest - kSmallestValue);
}

ReplicateConfig Actor::some_config() {
  ReplicateConfig config;
  config.replica_num = random_.chance(0.3) ? 2 : 1;
  config.hard_pin = random_.chance(0.01);
  if (random_.chance(0.1)) {
    config.soft_pin = SoftPin::kEnable;
    config.soft_pin_ttl = std::chrono::milliseconds(random_.below(400));
  } else if (random_.chance(0.05)) {
    config.soft_pin = SoftPin::kDisable;
  }
  return config;
}

Task<void> Actor::run() {
  while (shared_.operations_left > 0 && !shared_.quiet && !life_.dead) {
    --shared_.operations_left;
    const double dice = random_.unit();
    if (dice < 0.28) {
      co_await put(false);
    } else if (dice < 0.40) {
      co_await put(true);
    } else if (dice < 0.75) {
      co_await get();
    } else if (dice < 0.85) {
      co_await exist();
    } else if (dice < 0.90) {
      co_await locate();
    } else if (dice < 0.995) {
      co_await remove();
    } else {
      co_await remove_matching();
    }
    ++shared_.operations_done;
    co_await life_.host.sleep_for(std::chrono::microseconds(random_.below(8000)));
  }
  while (!kept_.empty())
    forget_oldest();
}

Task<void> Actor::put(bool upsert) {
  History& history = shared_.cluster->history();
  const std::size_t count = random_.chance(0.8) ? 1 : 1 + random_.below(6);
  std::vector<std::string> keys;
  std::vector<ValueId> ids;
  std::vector<std::vector<std::byte>> values;
  std::vector<std::array<ConstBytes, 2>> parts(count);
  std::vector<PutItem> items;
  const TimePoint begun = life_.host.now();
  for (std::size_t i = 0; i < count; ++i) {
    std::string key = some_key();
    while (std::find(keys.begin(), keys.end(), key) != keys.end())
      key = some_key();
    keys.push_back(key);
    ids.push_back(history.put_started(key, begun));
    values.push_back(make_value(ids[i], key, some_size()));
    history.put_sized(ids[i], values[i].size());
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t cut = random_.below(values[i].size());
    parts[i] = {ConstBytes(values[i]).first(cut), ConstBytes(values[i]).subspan(cut)};
    items.push_back(PutItem{keys[i], parts[i]});
  }
  store::PutOptions options;
  options.upsert = upsert;
  options.config = some_config();
  const TimePoint deadline = some_deadline();
  const std::uint64_t freezes = life_.freezes;
  const store::PutOutcome outcome = co_await life_.client->put(items, options, deadline);
  returned(upsert ? "upsert" : "put", deadline, freezes);
  for (std::size_t i = 0; i < count; ++i) {
    if (upsert && outcome.codes[i] == Code::kObjectExists) {
      shared_.violations.push_back("an upsert was told that its key exists");
    }
    history.put_ended(ids[i], outcome.codes[i], life_.host.now());
    keep(std::move(values[i]));
  }
}

Task<void> Actor::get() {
  History& history = shared_.cluster->history();
  const std::size_t count = random_.chance(0.7) ? 1 : 1 + random_.below(6);
  std::vector<std::string> keys;
  std::vector<std::vector<std::byte>> rooms;
  std::vector<std::array<MutableBytes, 2>> parts(count);
  std::vector<GetItem> items;
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(some_key());
    rooms.emplace_back(kLargestValue, kUntouched);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t cut = random_.below(kLargestValue);
    parts[i] = {MutableBytes(rooms[i]).first(cut), MutableBytes(rooms[i]).subspan(cut)};
    items.push_back(GetItem{keys[i], parts[i]});
  }
  const TimePoint begun = life_.host.now();
  const TimePoint deadline = some_deadline();
  const std::uint64_t freezes = life_.freezes;
  const std::vector<store::GetOutcome> outcomes = co_await life_.client->get(items, deadline);
  returned("get", deadline, freezes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = outcomes[i].code == Code::kOk ? outcomes[i].size : 0;
    history.got(keys[i], begun, life_.host.now(), outcomes[i].code,
                std::span(rooms[i]).first(std::min(size, rooms[i].size())));
    keep(std::move(rooms[i]));
  }
}

Task<void> Actor::read(std::string key) {
  std::vector<std::byte> room(kLargestValue);
  std::array<MutableBytes, 1> parts{room};
  std::vector<GetItem> items{GetItem{key, parts}};
  const TimePoint begun = life_.host.now();
  const TimePoint deadline = begun + std::chrono::seconds(5);
  const std::vector<store::GetOutcome> outcomes = co_await life_.client->get(items, deadline);
  const Code code = outcomes.front().code;
  const std::size_t size = code == Code::kOk ? outcomes.front().size : 0;
  shared_.cluster->history().got(key, begun, life_.host.now(), code,
                                 std::span(room).first(std::min(size, room.size())));
  if (code != Code::kOk && code != Code::kObjectNotFound) {
    shared_.violations.push_back(
        fmt::format("at peace, get of {} failed: {}", key, code_info(code).name));
  }
}

Task<void> Actor::exist() {
  std::vector<std::string> keys;
  std::vector<std::string_view> views;
  const std::size_t count = 1 + random_.below(8);
  for (std::size_t i = 0; i < count; ++i)
    keys.push_back(some_key());
  for (const std::string& key : keys)
    views.emplace_back(key);
  const TimePoint begun = life_.host.now();
  const TimePoint deadline = some_deadline();
  const std::uint64_t freezes = life_.freezes;
  const std::vector<Code> codes = co_await life_.client->exist(views, deadline);
  returned("exist", deadline, freezes);
  for (std::size_t i = 0; i < count; ++i) {
    shared_.cluster->history().existed(keys[i], begun, life_.host.now(), codes[i]);
  }
}

Task<void> Actor::locate() {
  const std::string key = some_key();
  const std::string_view view = key;
  const TimePoint begun = life_.host.now();
  const TimePoint deadline = some_deadline();
  const std::uint64_t freezes = life_.freezes;
  const auto found = co_await life_.client->locate_all(std::span(&view, 1), deadline);
  returned("locate", deadline, freezes);
  if (found.front().code != Code::kOk) co_return;
  std::vector<std::string> owners;
  for (const ReplicaDescriptor& replica : found.front().replicas)
    owners.push_back(replica.segment_name.substr(0, replica.segment_name.find(':')));
  shared_.cluster->history().located(key, found.front().size, std::move(owners), begun,
                                     life_.host.now());
}

Task<void> Actor::remove() {
  const std::string key = some_key();
  const std::string_view view = key;
  const bool force = random_.chance(0.5);
  const TimePoint begun = life_.host.now();
  const TimePoint deadline = some_deadline();
  const std::uint64_t freezes = life_.freezes;
  const std::vector<Code> codes =
      co_await life_.client->remove(std::span(&view, 1), force, deadline);
  returned("remove", deadline, freezes);
  shared_.cluster->history().removed(key, begun, life_.host.now(), codes.front());
}

// All keys, or those that end in a digit.
Task<void> Actor::remove_matching() {
  const std::string pattern = random_.chance(0.2) ? "" : fmt::format("{}$", random_.below(10));
  const bool force = random_.chance(0.5);
  const TimePoint begun = life_.host.now();
  const Result<std::uint64_t> removed =
      co_await life_.client->remove_matching(pattern, force, std::chrono::seconds(2));
  if (!removed) co_return;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < shared_.keys; ++i) {
    const std::string key = fmt::format("key{}", i);
    if (pattern.empty() || key.back() == pattern.front()) keys.push_back(key);
  }
  shared_.cluster->history().swept(keys, begun, life_.host.now(), *removed, force);
}

}  // namespace mooncake::simulation
