// A core for tests, with the commands as calls and verify() after each. Only for *_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/master/core.h"

namespace mooncake::store::master {

inline constexpr std::uint64_t kUnit = memory::kExtentUnit;
inline constexpr base::Duration kSecond = std::chrono::seconds(1);

inline CoreOptions test_options() {
  CoreOptions options;
  options.epoch = Epoch{100};
  options.epoch_limit = Epoch{1000};
  options.hash_seed = 42;
  options.eviction_high_watermark = 1;
  return options;
}

class Fixture {
 public:
  static constexpr ClientId kOne{1};
  static constexpr ClientId kTwo{2};

  explicit Fixture(const CoreOptions& options = test_options()) : core(options) {}

  // `index` names the segment: identity, incarnation, engine.
  static MountedSegment segment(std::uint64_t index, std::uint64_t units,
                                std::uint64_t incarnation = 1) {
    MountedSegment mounted;
    mounted.address.name = "host" + std::to_string(index) + ":1";
    mounted.address.host = "host" + std::to_string(index);
    mounted.address.id = base::Uuid{index, 1};
    mounted.address.incarnation = base::SegmentIncarnation{index * 1000 + incarnation};
    mounted.address.owner = base::Incarnation{index};
    mounted.address.size = units * kUnit;
    mounted.prepared = mounted.address.size;
    return mounted;
  }

  std::vector<Effect> apply(const Command& command) {
    const std::size_t room = std::max(command.items.size(), command.segments.size());
    std::vector<Effect> items(room);
    effects.items = items;
    effects.decisions = &decisions;
    core.apply(command, now, effects);
    if (check) {
      const Result<void> sound = core.verify();
      EXPECT_TRUE(sound) << sound.error().message();
    }
    return items;
  }

  std::vector<Code> segments_command(CommandKind kind, ClientId client,
                                     const std::vector<MountedSegment>& segments) {
    Command command;
    command.kind = kind;
    command.client = client;
    command.sequence = ++control;
    command.segments = segments;
    command.newest_epoch = newest_epoch;
    command.newest_version = newest_version;
    command.grace = grace;
    std::vector<Code> codes = {};
    for (const Effect& effect : apply(command))
      codes.push_back(effect.code);
    return codes;
  }
  Code mount(ClientId client, const std::vector<MountedSegment>& segments = {}) {
    for (const Code code : segments_command(CommandKind::kMount, client, segments)) {
      if (code != Code::kOk) return code;
    }
    return effects.code;
  }
  Code heartbeat(ClientId client, const std::vector<MountedSegment>& segments = {}) {
    for (const Code code : segments_command(CommandKind::kHeartbeat, client, segments)) {
      if (code != Code::kOk) return code;
    }
    return effects.code;
  }
  Code unmount(ClientId client, const std::vector<MountedSegment>& segments = {}) {
    for (const Code code : segments_command(CommandKind::kUnmount, client, segments)) {
      if (code != Code::kOk) return code;
    }
    return effects.code;
  }

  // Under the terms of the fixture, as an upsert.
  Effect grant_upsert(ClientId client, std::string_view key, std::uint64_t size) {
    const GrantTerms before = std::exchange(terms, upsert_terms());
    const Effect granted = grant(client, key, size);
    terms = before;
    return granted;
  }
  Effect upsert(ClientId client, std::string_view key, std::uint64_t size = kUnit) {
    const Effect granted = grant_upsert(client, key, size);
    if (granted.code != Code::kOk) return granted;
    EXPECT_EQ(publish(client, key, granted).code, Code::kOk);
    return granted;
  }
  GrantTerms upsert_terms() const {
    GrantTerms upserting = terms;
    upserting.upsert = true;
    return upserting;
  }

  // One item under the next number of the client, or under `number`.
  Effect one(CommandKind kind, ClientId client, CommandItem item, std::uint64_t number = 0) {
    Command command;
    command.kind = kind;
    command.client = client;
    command.sequence = number == 0 ? ++numbers : number;
    command.oldest_open = oldest_open;
    command.items = {&item, 1};
    command.replicas = replicas;
    command.terms = terms;
    command.force = force;
    return apply(command).front();
  }
  Effect grant(ClientId client, std::string_view key, std::uint64_t size,
               std::uint64_t number = 0) {
    CommandItem item;
    item.key = key;
    item.size = size;
    return one(CommandKind::kGrant, client, item, number);
  }
  std::vector<base::SegmentIncarnation> incarnations(const Effect& grant) const {
    std::vector<base::SegmentIncarnation> all;
    for (std::size_t i = 0; i < grant.replicas; ++i) {
      const SegmentAddress* address = core.segment(grant.placements[i].segment);
      all.push_back(address == nullptr ? base::SegmentIncarnation{1} : address->incarnation);
    }
    return all;
  }
  Effect publish(ClientId client, std::string_view key, const Effect& grant,
                 std::vector<base::SegmentIncarnation> arrived, std::uint64_t number = 0) {
    CommandItem item;
    item.key = key;
    item.version = grant.version;
    item.incarnations = arrived;
    return one(CommandKind::kPublish, client, item, number);
  }
  Effect publish(ClientId client, std::string_view key, const Effect& grant) {
    return publish(client, key, grant, incarnations(grant));
  }
  Effect revoke(ClientId client, std::string_view key, Version version) {
    CommandItem item;
    item.key = key;
    item.version = version;
    return one(CommandKind::kRevoke, client, item);
  }
  // Grant and publish.
  Effect put(ClientId client, std::string_view key, std::uint64_t size = kUnit) {
    const Effect granted = grant(client, key, size);
    if (granted.code != Code::kOk) return granted;
    EXPECT_EQ(publish(client, key, granted).code, Code::kOk);
    return granted;
  }
  // Two clients with a segment of ten units each, on which the object "both" has a replica each.
  void mount_two_with_both() {
    mount(kOne, {segment(1, 10)});
    mount(kTwo, {segment(2, 10)});
    replicas = 2;
    put(kOne, "both");
    replicas = 1;
  }
  Effect locate(std::string_view key) {
    CommandItem item;
    item.key = key;
    return one(CommandKind::kLocate, kOne, item);
  }
  Code exist(std::string_view key) {
    CommandItem item;
    item.key = key;
    return one(CommandKind::kExist, kOne, item).code;
  }
  Code remove(ClientId client, std::string_view key, std::uint64_t number = 0) {
    CommandItem item;
    item.key = key;
    return one(CommandKind::kRemove, client, item, number).code;
  }
  bool tick(std::size_t budget = 4096) {
    Command command;
    command.budget = budget;
    apply(command);
    return effects.more;
  }
  // Moves the clock, with a tick each second and a sign of life of these clients.
  void pass(base::Duration duration, const std::vector<ClientId>& alive = {kOne, kTwo}) {
    for (const TimePoint end = now + duration; now < end;) {
      now += std::min<base::Duration>(kSecond, end - now);
      for (const ClientId client : alive)
        heartbeat(client);
      tick();
    }
  }
  int count(Decision::Kind kind) const {
    int found = 0;
    for (const Decision& decision : decisions)
      found += decision.kind == kind;
    return found;
  }

  Core core;
  TimePoint now{kSecond};
  Effects effects;
  std::vector<Decision> decisions;
  bool check = true;
  bool force = false;
  std::uint32_t replicas = 1;
  GrantTerms terms;
  std::uint64_t numbers = 0;
  std::uint64_t oldest_open = 0;
  Version newest_version;  // that heartbeats report
  base::Duration grace{};  // of unmounts
  std::uint64_t control = 0;
  Epoch newest_epoch{};
};

}  // namespace mooncake::store::master
