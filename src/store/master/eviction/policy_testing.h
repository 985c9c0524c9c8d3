// Entries for tests of policies, which count how often a policy looks at one. Only for *_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <vector>

#include "store/master/eviction/make_policy.h"

namespace mooncake::store::master {

struct TestItem {
  QueueLinks links;
  std::uint8_t bits = 0;
  std::uint64_t until = 0;
  std::uint64_t size = 1;
};
struct TestItems {
  std::vector<TestItem>* items;
  std::uint64_t* looks;
  QueueLinks& links(std::uint32_t i) const { return (*items)[i].links; }
  std::uint8_t& bits(std::uint32_t i) const { return (*items)[i].bits; }
  std::uint64_t until(std::uint32_t i) const {
    ++*looks;
    return (*items)[i].until;
  }
  // Prints that differ, all in one group while there are few candidates.
  std::uint64_t hash(std::uint32_t i) const { return i + 1; }
  std::uint64_t size(std::uint32_t i) const { return (*items)[i].size; }
};

// A policy, and its candidates in order of publishing.
struct PolicyFixture {
  PolicyFixture(EvictionKind kind, std::size_t entries, std::uint64_t hold_ns)
      : hold(hold_ns),
        items(entries),
        policy(make_policy(kind, TestItems{&items, &looks}, hold_ns)) {}

  void publish(std::uint32_t entry) {
    items[entry].until = now;
    policy->on_publish(entry);
    candidates.push_back(entry);
  }
  void access(std::uint32_t entry) {
    items[entry].until = now + hold;
    policy->on_access(entry);
  }
  void remove(std::uint32_t entry) {
    policy->on_remove(entry);
    candidates.remove(entry);
  }
  std::uint32_t next() { return policy->next_victim(now); }
  // kNobody when nothing could go.
  std::uint32_t evict() {
    const std::uint32_t victim = next();
    if (victim != kNobody) remove(victim);
    return victim;
  }
  bool is_candidate(std::uint32_t entry) const {
    return std::find(candidates.begin(), candidates.end(), entry) != candidates.end();
  }
  bool is_held(std::uint32_t entry) const { return items[entry].until > now; }

  const std::uint64_t hold;
  std::uint64_t now = 1000;
  std::uint64_t looks = 0;
  std::vector<TestItem> items;
  std::list<std::uint32_t> candidates;
  std::unique_ptr<EvictionPolicy> policy;
};

}  // namespace mooncake::store::master
