// Proves the store's behaviour with real processes and sockets: cases C10, C11, C12, C14 and
// C33 of the public record, removal by pattern, where replicas lie, what a lack of space says, the
// cluster secret, and a Master that is killed and comes back.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mooncake/store.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "master_process.h"

namespace mooncake::integration {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Store> open_store(const MasterProcess& master, std::uint64_t segment,
                                  const std::string& secret = "",
                                  std::chrono::seconds timeout = std::chrono::seconds(10)) {
  StoreOptions options;
  options.master_server_address = master.rpc_address();
  options.global_segment_size = segment;
  options.cluster_secret = secret;
  options.timeout = timeout;
  Result<std::unique_ptr<Store>> store = Store::create(options);
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

ConstBytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string value_of(std::size_t writer, std::size_t key, std::size_t size) {
  std::string value = fmt::format("writer {} key {} ", writer, key);
  while (value.size() < size)
    value += static_cast<char>('a' + (value.size() * 7 + writer) % 26);
  return value;
}

// C24: a port at which nobody can be is a typo, said at once instead of after a time-out.
TEST(StoreCases, C24AMasterAtPortZeroIsRefusedAtOnce) {
  StoreOptions options;
  options.master_server_address = "127.0.0.1:0";
  options.timeout = std::chrono::hours(1);
  const Result<std::unique_ptr<Store>> store = Store::create(options);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), Code::kInvalidArgument);
  EXPECT_NE(store.error().message().find("master_server_address: '127.0.0.1:0'"), std::string::npos)
      << store.error().message();
}

// C11: a put of an existing key leaves it as it is; an upsert replaces it, and readers see one
// whole version or the other, whoever reads, at any moment.
TEST(StoreCases, C11AnUpsertReplacesAtomically) {
  MasterProcess master;
  auto writer = open_store(master, 64u << 20);
  auto reader = open_store(master, 64u << 20);
  ASSERT_TRUE(writer && reader);
  constexpr std::size_t kSize = 300'000, kUpserts = 200;
  ASSERT_TRUE(writer->put("k", bytes_of(value_of(0, 0, kSize))));
  ASSERT_TRUE(reader->put("k", bytes_of(value_of(9, 9, kSize))));
  EXPECT_EQ(text_of(reader->get("k").value_or(std::vector<std::byte>())), value_of(0, 0, kSize));
  std::atomic<bool> over{false};
  std::thread upserting([&] {
    for (std::size_t i = 1; i <= kUpserts; ++i) {
      Result<void> done = writer->upsert("k", bytes_of(value_of(i, 0, kSize + i)));
      EXPECT_TRUE(done) << done.error().message();
    }
    over = true;
  });
  std::size_t last = 0;
  do {
    const Result<std::vector<std::byte>> value = reader->get("k");
    ASSERT_TRUE(value) << value.error().message();
    const std::size_t version = value->size() - kSize;
    ASSERT_LE(version, kUpserts);
    EXPECT_GE(version, last) << "one writer's versions do not go back";
    EXPECT_EQ(text_of(*value), value_of(version, 0, kSize + version)) << "a mixture";
    last = version;
  } while (!over);
  upserting.join();
  EXPECT_EQ(reader->size("k").value_or(0), kSize + kUpserts);
}

TEST(StoreCases, WhatMatchesIsRemovedAndReplicasAreTold) {
  MasterProcess master;
  auto a = open_store(master, 16u << 20);
  auto b = open_store(master, 16u << 20);
  ASSERT_TRUE(a && b);
  ReplicateConfig config;
  config.replica_num = 2;
  config.preferred_segments = {b->local_name(), a->local_name()};
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(
        a->put(fmt::format("{}/{}", i % 2 == 0 ? "even" : "odd", i), bytes_of("value"), config));
  }
  const std::string_view keys[] = {"odd/1", "nobody"};
  const auto replicas = a->replicas_batch(keys);
  ASSERT_EQ(replicas.size(), 2u);
  ASSERT_EQ(replicas[0].size(), 2u);
  EXPECT_EQ(replicas[0][0].segment_name, b->local_name());
  EXPECT_EQ(replicas[0][1].segment_name, a->local_name());
  EXPECT_EQ(replicas[0][0].size, 5u);
  EXPECT_NE(replicas[0][0].address, 0u);
  EXPECT_TRUE(replicas[1].empty());
  EXPECT_EQ(b->remove_by_regex("^odd/").value_or(0), 9u) << "one is leased";
  EXPECT_EQ(b->remove_by_regex("^odd/", true).value_or(0), 1u);
  const Result<std::uint64_t> wrong = b->remove_by_regex("[");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(code_info(wrong.error().code()).store, -600);
  EXPECT_FALSE(b->remove_by_regex(""));
  EXPECT_EQ(a->remove_all().value_or(0), 10u);
  EXPECT_EQ(a->remove_all(true).value_or(99), 0u);
}

TEST(StoreCases, ALackOfSpaceSaysWhatHoldsTheRest) {
  MasterProcess master;
  auto store = open_store(master, 16u << 20);
  ASSERT_TRUE(store);
  const std::string large = value_of(1, 1, 9u << 20);
  ReplicateConfig pinned;
  pinned.hard_pin = true;
  ASSERT_TRUE(store->put("pinned", bytes_of(large), pinned));
  const Result<void> refused = store->put("large", bytes_of(large));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNoSpace);
  const std::string why(refused.error().detail());
  for (const char* word : {"large", "needs", "evictable 0", "pinned 9"})
    EXPECT_NE(why.find(word), std::string::npos) << why;
}

// C12: 16 threads batch-put the same 100 keys. One winner per key, the others "present", no leak.
TEST(StoreCases, C12ConcurrentDuplicatePutsHaveOneWinner) {
  MasterProcess master;
  auto first = open_store(master, 64u << 20);
  auto second = open_store(master, 64u << 20);
  ASSERT_TRUE(first && second);
  constexpr std::size_t kWriters = 16, kKeys = 100, kSize = 20'000;
  std::vector<std::string> keys;
  for (std::size_t k = 0; k < kKeys; ++k)
    keys.push_back(fmt::format("c12/{}", k));
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      std::vector<std::string> values;
      std::vector<ConstBytes> parts;
      std::vector<PutItem> items;
      for (std::size_t k = 0; k < kKeys; ++k)
        values.push_back(value_of(w, k, kSize));
      for (const std::string& value : values)
        parts.push_back(bytes_of(value));
      for (std::size_t k = 0; k < kKeys; ++k)
        items.push_back({keys[k], std::span(&parts[k], 1)});
      Store& store = w % 2 == 0 ? *first : *second;
      for (std::int32_t code : store.put_batch(items))
        failures += code != 0;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failures, 0);
  for (std::size_t k = 0; k < kKeys; ++k) {
    Result<std::vector<std::byte>> value = second->get(keys[k]);
    ASSERT_TRUE(value) << keys[k] << ": " << value.error().message();
    const std::string text = text_of(*value);
    std::size_t writers = 0;
    for (std::size_t w = 0; w < kWriters; ++w)
      writers += text == value_of(w, k, kSize);
    EXPECT_EQ(writers, 1u) << keys[k] << " holds no writer's value";
  }
  // Nothing leaked: all of both segments can be put again once the keys are gone.
  std::vector<std::string_view> views(keys.begin(), keys.end());
  for (std::int32_t code : first->remove_batch(views, true))
    EXPECT_EQ(code, 0);
  const std::string large = value_of(1, 1, 60u << 20);
  EXPECT_TRUE(first->put("c12/large a", bytes_of(large)));
  EXPECT_TRUE(first->put("c12/large b", bytes_of(large)));
}

// C14: 32 writers put 256 MiB of unpinned data into a 64 MiB segment. Every put succeeds by
// eviction.
TEST(StoreCases, C14NeverNoSpaceWhileEnoughCanBeEvicted) {
  MasterProcess master({"-default_kv_lease_ttl=50"});
  auto owner = open_store(master, 64u << 20);
  ASSERT_TRUE(owner);
  constexpr std::size_t kWriters = 32, kEach = 32, kSize = 256u << 10;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      for (std::size_t i = 0; i < kEach; ++i) {
        const std::string value = value_of(w, i, kSize);
        Result<void> put = owner->put(fmt::format("c14/{}/{}", w, i), bytes_of(value));
        if (!put) {
          ++failures;
          ADD_FAILURE() << put.error().message();
          return;
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failures, 0);
  // The youngest are there, whole.
  std::size_t found = 0;
  for (std::size_t w = 0; w < kWriters; ++w) {
    Result<std::vector<std::byte>> value = owner->get(fmt::format("c14/{}/{}", w, kEach - 1));
    if (!value) continue;
    ++found;
    EXPECT_EQ(text_of(*value), value_of(w, kEach - 1, kSize));
  }
  EXPECT_GT(found, kWriters / 2);
}

// A client without the secret, or with a wrong one, is refused at once and says why.
TEST(StoreCases, SecretIsRequiredOnBothSides) {
  MasterProcess secured({"-cluster_secret=open sesame"});
  ASSERT_TRUE(open_store(secured, 1u << 20, "open sesame"));
  for (const std::string& wrong : {std::string(), std::string("open barley")}) {
    StoreOptions options;
    options.master_server_address = secured.rpc_address();
    options.cluster_secret = wrong;
    const auto begun = Clock::now();
    Result<std::unique_ptr<Store>> store = Store::create(options);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code(), Code::kAuthenticationFailed) << store.error().message();
    EXPECT_LT(Clock::now() - begun, std::chrono::seconds(3));
  }
  // And a client that has a secret does not talk to a Master without.
  MasterProcess open;
  StoreOptions options;
  options.master_server_address = open.rpc_address();
  options.cluster_secret = "open sesame";
  EXPECT_FALSE(Store::create(options));
}

// A Master that is killed and restarted: clients mount again by themselves within 5 s and go on;
// what was there before is a miss.
TEST(StoreCases, RestartedMasterIsMountedAgain) {
  MasterProcess master({"-client_ttl=2"});
  auto a = open_store(master, 16u << 20);
  auto b = open_store(master, 16u << 20);
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(a->put("before", bytes_of("value before")));
  master.restart();
  ASSERT_TRUE(master.running()) << master.errors();
  const auto limit = Clock::now() + std::chrono::seconds(5);
  bool stored = false;
  int tries = 0;
  while (!stored && Clock::now() < limit) {
    stored = a->put(fmt::format("after {}", ++tries), bytes_of("value after")).has_value();
  }
  ASSERT_TRUE(stored) << "not mounted again within 5 s";
  Result<std::vector<std::byte>> read = b->get(fmt::format("after {}", tries));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(text_of(*read), "value after");
  Result<std::vector<std::byte>> old = b->get("before");
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().code(), Code::kObjectNotFound);
}

// C33: a dead Master: existence is 0 within the deadline, counted and with its reason
// where that is asked for, and close() takes less than two seconds.
TEST(StoreCases, DeadMasterIsAMissAndClosesQuickly) {
  MasterProcess master;
  auto store = open_store(master, 16u << 20, "", std::chrono::seconds(1));
  ASSERT_TRUE(store);
  ASSERT_TRUE(store->put("key", bytes_of("value")));
  master.kill_hard();
  const std::string_view key = "key";
  EXPECT_EQ(store->exist_batch(std::span(&key, 1)).front(), 0);
  EXPECT_FALSE(store->get(key));
  const std::string counted = "\nmooncake_client_unanswered_keys_total 2\n";
  EXPECT_NE(store->metrics().find(counted), std::string::npos) << store->metrics();
  const ItemOutcome outcome = store->exist_outcomes(std::span(&key, 1)).front();
  EXPECT_EQ(outcome.miss, MissReason::kMasterUnreachable);
  EXPECT_NE(outcome.detail.find(master.rpc_address()), std::string::npos) << outcome.detail;
  const Result<KeyReport> report = store->why(key);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().detail().find(master.rpc_address()), std::string::npos);
  const auto begun = Clock::now();
  store->close();
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(2));
  EXPECT_EQ(store->exist_batch(std::span(&key, 1)).front(), -600);
}

// C10, C11: outcomes tell an empty value from a missing one, and a put of an existing key from one
// that stored.
TEST(StoreCases, OutcomesHaveTheirReasons) {
  MasterProcess master;
  auto store = open_store(master, 16u << 20);
  ASSERT_TRUE(store);
  const std::string value = "value";
  const ConstBytes bytes = bytes_of(value), nothing;
  const PutItem items[] = {{"a", {&bytes, 1}}, {"a", {&bytes, 1}}, {"empty", {&nothing, 1}}};
  const std::vector<ItemOutcome> put = store->put_outcomes(items);
  EXPECT_EQ(put[0].code, Code::kOk);
  EXPECT_EQ(put[1].code, Code::kObjectExists);
  EXPECT_EQ(put[2].code, Code::kInvalidArgument);
  EXPECT_EQ(put[2].detail, "invalid argument: the value is empty");
  const std::string_view keys[] = {"a", "empty"};
  std::vector<std::byte> room(100);
  const auto got = store->get_outcomes(
      keys, [&](std::size_t, std::uint64_t size) { return std::span(room).first(size); });
  EXPECT_EQ(got[0].size, value.size());
  EXPECT_EQ(got[1].miss, MissReason::kNeverStored);
  EXPECT_EQ(std::memcmp(room.data(), value.data(), value.size()), 0);
  const Result<KeyReport> report = store->why("a");
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->state, KeyState::kPublished);
}

// Embedded: one process, no Master process, no port.
TEST(StoreCases, EmbeddedModeNeedsNobody) {
  StoreOptions options;
  options.master_server_address = "embedded";
  options.global_segment_size = 32u << 20;
  Result<std::unique_ptr<Store>> store = Store::create(options);
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ((*store)->engine().port(), 0);
  ASSERT_TRUE((*store)->put("key", bytes_of("value")));
  Result<std::vector<std::byte>> value = (*store)->get("key");
  ASSERT_TRUE(value);
  EXPECT_EQ(text_of(*value), "value");
  EXPECT_EQ((*store)->size("key").value_or(0), 5u);
  EXPECT_FALSE((*store)->put("empty", {}));
}

}  // namespace
}  // namespace mooncake::integration
