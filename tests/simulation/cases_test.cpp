// What users of such systems were bitten by, on a simulated cluster: a node that comes back under
// its name at once (C6), a writer that leaves (C15), a shared config (C35), a writer that dies in
// the middle, an upsert under readers, replicas that die, a segment that is taken back.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster.h"
#include "store/client/messages.h"

namespace mooncake::simulation {
namespace {

using base::Task;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kSize = 20'000;

Task<store::PutOutcome> put_with(Life* life, std::string key, std::byte fill,
                                 store::PutOptions options) {
  const std::vector<std::byte> value(kSize, fill);
  const ConstBytes part(value);
  const PutItem item{key, {&part, 1}};
  co_return co_await life->client->put({&item, 1}, options, life->host.now() + seconds(2));
}

Task<Code> put(Life* life, std::string key, std::byte fill = std::byte{1}) {
  const store::PutOptions options;
  const store::PutOutcome outcome = co_await put_with(life, key, fill, options);
  co_return outcome.codes.front();
}

Task<Code> upsert(Life* life, std::string key, std::byte fill) {
  store::PutOptions options;
  options.upsert = true;
  const store::PutOutcome outcome = co_await put_with(life, key, fill, options);
  co_return outcome.codes.front();
}

// The byte that fills the value; nothing on a miss, and a failure when it is not all one byte.
Task<std::optional<std::byte>> get(Life* life, std::string key) {
  std::vector<std::byte> room(kSize);
  const MutableBytes part(room);
  const GetItem item{key, {&part, 1}};
  const auto outcomes = co_await life->client->get({&item, 1}, life->host.now() + seconds(2));
  if (outcomes.front().code != Code::kOk) co_return std::nullopt;
  EXPECT_EQ(room, std::vector<std::byte>(kSize, room.front())) << "a mixture";
  co_return room.front();
}

Task<Code> exist(Life* life, std::string key) {
  const std::string_view view = key;
  const auto codes = co_await life->client->exist({&view, 1}, life->host.now() + seconds(2));
  co_return codes.front();
}

Task<void> put_and_forget(Life* life, std::string key) { co_await put(life, key); }

Task<void> keep_upserting(Life* life, const bool* over, int* stored) {
  for (; !*over; ++*stored) {
    const Code code = co_await upsert(life, "k", static_cast<std::byte>(1 + *stored % 200));
    EXPECT_EQ(code, Code::kOk);
    co_await life->host.sleep_for(std::chrono::microseconds(700));
  }
}

// Claims memory at the Master without being what it says.
Task<Code> mount_falsely(os::Env env, net::Identity identity, store::SegmentAddress address) {
  net::RpcClient::Options rpc;
  rpc.identity = identity;
  const net::Address master("master", 50051);
  const auto client = net::RpcClient::create(env, master, rpc);
  const store::OwnSegment claimed{address, address.size};
  net::CallOptions call;
  call.deadline = env.now() + seconds(5);
  const net::Bytes body =
      store::encode_mount(store::ClientId{77}, 1, {}, address.name, {&claimed, 1});
  Result<net::Reply> reply = co_await client->call(net::Method::kMount, body, call);
  Code code = reply ? Code::kOk : reply.error().code();
  if (reply) {
    const Result<store::MountOutcome> outcome = store::decode_mount(reply->body, 1);
    code = outcome ? outcome->codes.front() : outcome.error().code();
  }
  co_await client->stop();
  co_return code;
}

struct Cases : testing::Test {
  void SetUp() override { base::set_log_level(base::LogLevel::kOff); }
  void TearDown() override {
    cluster->stop();
    EXPECT_TRUE(until([&] { return pending.running() == 0; }, seconds(10)));
  }
  void start(std::size_t clients) {
    options.clients = clients;
    cluster.emplace(options);
    cluster->start_master();
    for (std::size_t i = 0; i < clients; ++i) {
      cluster->start_client(i);
      ASSERT_NE(life(i), nullptr);
    }
  }
  Life* life(std::size_t index) { return cluster->client(index); }
  template <typename T>
  T run(Task<T> task) {
    return cluster->world().run(std::move(task));
  }
  bool until(const std::function<bool()>& holds, base::Duration limit) {
    return cluster->world().run_until(holds, cluster->now() + limit);
  }
  void beside(Life* of, Task<void> task) {
    auto shared = std::make_shared<Task<void>>(std::move(task));
    of->host.post([this, shared] { pending.start(std::move(*shared)); });
  }
  const store::master::Core& core() { return cluster->core(); }

  ClusterOptions options;
  std::optional<Cluster> cluster;
  base::TaskGroup pending;
};

// Case C6: kill -9, and back at once under the same host:port. The new incarnation replaces the old
// one without waiting for it to expire, and what is lost is said to be.
TEST_F(Cases, C6ANamesakeThatReturnsReplacesTheDead) {
  start(2);
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(run(put(life(0), "k" + std::to_string(i))), Code::kOk);
  const std::uint64_t objects = core().totals().objects;
  const auto before = cluster->now();
  cluster->kill_client(0);
  cluster->start_client(0);
  ASSERT_NE(life(0), nullptr) << "refused";
  EXPECT_LT(cluster->now() - before, seconds(1));
  EXPECT_EQ(core().totals().disowned_clients, 1u);
  EXPECT_EQ(core().totals().clients, 2u);
  EXPECT_GT(core().totals().lost_objects, 0u);
  EXPECT_EQ(core().totals().objects + core().totals().lost_objects, objects);
  EXPECT_EQ(cluster->history().losses, core().totals().lost_objects);
  ASSERT_TRUE(core().verify());
  for (int i = 0; i < 20; ++i) {
    const std::string key = "k" + std::to_string(i);
    const bool there = run(exist(life(1), key)) == Code::kOk;
    EXPECT_EQ(run(get(life(1), key)).has_value(), there) << key;
  }
  EXPECT_EQ(run(put(life(0), "after")), Code::kOk);
}

// The word of a newcomer is not enough: while the old engine answers, its namesake is refused.
TEST_F(Cases, C6AnEngineThatAnswersIsNotReplaced) {
  start(1);
  const store::SegmentAddress there = core().segments().front().address;
  ASSERT_EQ(run(put(life(0), "k")), Code::kOk);
  store::SegmentAddress claimed = there;
  claimed.id = base::Uuid{7, 7};
  claimed.owner = base::Incarnation{7};
  os::SimHost host(cluster->world());
  base::Random random(7);
  os::FakeDisk disk;
  const os::Env env{host, random, cluster->network().host("impostor", host), disk};
  net::Identity identity;
  identity.role = "client";
  identity.name = "impostor";
  identity.incarnation = claimed.owner;
  identity.cluster_secret = options.cluster_secret;
  EXPECT_EQ(run(mount_falsely(env, identity, claimed)), Code::kSegmentExists);
  EXPECT_EQ(core().totals().disowned_clients, 0u);
  EXPECT_EQ(run(get(life(0), "k")), std::byte{1});
}

// Case C15: what lies with a client that closes is lost with it; the rest stays.
TEST_F(Cases, C15ACleanCloseTakesItsOwnMemoryOnly) {
  start(3);
  store::PutOptions both;
  both.config.replica_num = 2;
  for (int i = 0; i < 20; ++i)
    run(put_with(life(0), "k" + std::to_string(i), std::byte{3}, both));
  cluster->close_client(0);
  EXPECT_EQ(core().totals().clients, 2u);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(run(get(life(1), "k" + std::to_string(i))), std::byte{3});
}

// Case C35: each call has the values that its config had when it was called.
TEST_F(Cases, C35EachPutHasTheValuesOfItsOwnCall) {
  start(1);
  store::PutOptions shared;
  shared.config.hard_pin = true;
  Task<store::PutOutcome> first = put_with(life(0), "pinned", std::byte{1}, shared);
  shared.config.hard_pin = false;
  shared.config.group_ids = {{"a", "b"}};  // one too many
  Task<store::PutOutcome> second = put_with(life(0), "refused", std::byte{1}, shared);
  shared.config.group_ids = {{"a"}};
  Task<store::PutOutcome> third = put_with(life(0), "plain", std::byte{1}, shared);
  EXPECT_EQ(run(std::move(first)).codes.front(), Code::kOk);
  const store::PutOutcome refused = run(std::move(second));
  EXPECT_EQ(refused.codes.front(), Code::kInvalidArgument);
  EXPECT_EQ(refused.why, "group_ids: 2 for 1 objects");
  EXPECT_EQ(run(std::move(third)).codes.front(), Code::kOk);
  EXPECT_EQ(core().totals().hard_pinned_objects, 1u);
  EXPECT_EQ(core().totals().objects, 2u);
}

TEST_F(Cases, AConfigThatContradictsItselfIsRefusedAndSaysHow) {
  start(1);
  const auto why = [&](auto change) {
    store::PutOptions options_;
    change(options_.config);
    const store::PutOutcome outcome = run(put_with(life(0), "k", std::byte{1}, options_));
    EXPECT_EQ(outcome.codes.front(), Code::kInvalidArgument);
    return outcome.why;
  };
  EXPECT_EQ(why([](auto& c) { c.replica_num = 0; }), "replica_num: 0, at least 1 is needed");
  EXPECT_EQ(why([](auto& c) { c.soft_pin_ttl = milliseconds(5); }),
            "soft_pin_ttl: 5 ms without soft_pin = enable");
  EXPECT_EQ(why([](auto& c) {
              c.soft_pin = SoftPin::kEnable;
              c.soft_pin_ttl = milliseconds(-1);
            }),
            "soft_pin_ttl: -1 ms is outside 0 to 4294967294 ms");
  EXPECT_EQ(why([](auto& c) { c.preferred_segments = {""}; }),
            "preferred_segments: a name is empty");
  EXPECT_EQ(why([](auto& c) { c.preferred_segments.assign(65, "a:1"); }),
            "preferred_segments: 65, at most 64 are allowed");
  // What only the Master knows to be wrong.
  why([](auto& c) {
    c.soft_pin = SoftPin::kEnable;
    c.soft_pin_ttl = std::chrono::hours(25);
  });
  EXPECT_EQ(core().totals().open_grants, 0u);
}

// A put of a key that is there costs a question and no data.
TEST_F(Cases, APutOfAnExistingKeyMovesNoData) {
  start(2);
  ASSERT_EQ(run(put(life(0), "k")), Code::kOk);
  // The owner of memory knows of each write that begins there.
  const auto newest = [&](std::size_t i) { return life(i)->client->extents()->newest(); };
  const base::Version before[] = {newest(0), newest(1)};
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(run(put(life(i % 2), "k", std::byte{9})), Code::kObjectExists);
  EXPECT_EQ(newest(0), before[0]);
  EXPECT_EQ(newest(1), before[1]);
  EXPECT_EQ(run(get(life(1), "k")), std::byte{1});
}

// A put whose place was granted at an owner that is dead finds another one.
TEST_F(Cases, APutGoesOnToAnotherOwner) {
  start(3);
  ASSERT_EQ(run(put(life(2), "before")), Code::kOk);
  cluster->kill_client(0);
  store::PutOptions there;
  there.config.preferred_segments = {"client0:12300"};
  for (int i = 0; i < 20; ++i) {
    const std::string key = "k" + std::to_string(i);
    EXPECT_EQ(run(put(life(2), key)), Code::kOk) << key;
    EXPECT_EQ(run(put_with(life(2), "p" + key, std::byte{2}, there)).codes.front(), Code::kOk);
    EXPECT_EQ(run(get(life(1), "p" + key)), std::byte{2});
  }
  EXPECT_EQ(core().totals().clients, 3u) << "the dead one has not been forgotten yet";
  EXPECT_EQ(core().totals().open_grants, 0u);
}

TEST_F(Cases, APutThatReachesNoOwnerSaysSo) {
  options.segment_size = 1u << 20;
  start(2);
  ASSERT_EQ(run(put(life(0), "before")), Code::kOk);
  run(life(1)->client->unmount_segment({}, cluster->now() + seconds(1)));
  cluster->kill_client(0);
  const store::PutOutcome outcome = run(put_with(life(1), "k", std::byte{1}, {}));
  EXPECT_EQ(outcome.codes.front(), Code::kUnreachable);
  EXPECT_NE(outcome.why.find("needs 20000 B; "), std::string::npos) << outcome.why;
  EXPECT_NE(outcome.why.find("the owner of the room was not reached"), std::string::npos)
      << outcome.why;
}

// A writer that dies in the middle of a put: its key is usable again within client_ttl + 5 s.
TEST_F(Cases, KeysOfADeadWriterAreUsableAgain) {
  options.core.client_ttl = seconds(2);
  options.core.grant_ttl = std::chrono::hours(1);
  start(2);
  beside(life(1), put_and_forget(life(1), "k"));
  ASSERT_TRUE(until([&] { return core().totals().open_grants == 1; }, seconds(1)));
  cluster->kill_client(1);
  EXPECT_EQ(run(put(life(0), "k")), Code::kObjectExists) << "it is being written";
  const auto died = cluster->now();
  ASSERT_TRUE(until([&] { return core().totals().open_grants == 0; }, seconds(7)));
  EXPECT_LT(cluster->now() - died, options.core.client_ttl + seconds(5));
  EXPECT_EQ(run(put(life(0), "k", std::byte{7})), Code::kOk);
  EXPECT_EQ(run(get(life(0), "k")), std::byte{7});
}

// Readers of a key that is upserted all the time never miss and never see a mixture.
TEST_F(Cases, ReadersNeverMissAKeyThatIsUpserted) {
  start(3);
  ASSERT_EQ(run(upsert(life(0), "k", std::byte{1})), Code::kOk);
  int stored = 0;
  bool over = false;
  beside(life(0), keep_upserting(life(0), &over, &stored));
  int hits = 0;
  for (int i = 0; i < 300; ++i) {
    const std::optional<std::byte> found = run(get(life(1 + i % 2), "k"));
    ASSERT_TRUE(found) << "read " << i << ", after " << stored << " upserts";
    ++hits;
    EXPECT_EQ(run(exist(life(2), "k")), Code::kOk);
  }
  over = true;
  ASSERT_TRUE(until([&] { return pending.running() == 0; }, seconds(5)));
  EXPECT_GT(stored, 20);
  EXPECT_EQ(core().totals().objects, 1u);
}

TEST_F(Cases, AReadGoesOnToAnotherReplica) {
  start(4);
  store::PutOptions three;
  three.config.replica_num = 3;
  three.config.preferred_segments = {"client0:12300", "client1:12300", "client2:12300"};
  ASSERT_EQ(run(put_with(life(3), "k", std::byte{5}, three)).codes.front(), Code::kOk);
  cluster->kill_client(0);
  cluster->kill_client(1);
  EXPECT_EQ(run(get(life(3), "k")), std::byte{5});
}

// The reader's own segment is preferred, so that nobody else is needed.
TEST_F(Cases, AReadTakesTheNearestReplica) {
  start(3);
  store::PutOptions two;
  two.config.replica_num = 2;
  two.config.preferred_segments = {"client0:12300", "client1:12300"};
  ASSERT_EQ(run(put_with(life(2), "k", std::byte{5}, two)).codes.front(), Code::kOk);
  cluster->network().partition("client0", "client1");
  for (std::size_t reader : {0u, 1u}) {
    const auto before = cluster->now();
    EXPECT_EQ(run(get(life(reader), "k")), std::byte{5});
    EXPECT_LT(cluster->now() - before, milliseconds(100));
  }
}

TEST_F(Cases, ASegmentThatIsTakenBackIsReadableForItsGrace) {
  start(2);
  store::PutOptions there;
  there.config.preferred_segments = {"client0:12300"};
  ASSERT_EQ(run(put_with(life(1), "k", std::byte{5}, there)).codes.front(), Code::kOk);
  const auto unmounted =
      run(life(0)->client->unmount_segment(seconds(3), cluster->now() + seconds(1)));
  ASSERT_TRUE(unmounted) << unmounted.error().message();
  EXPECT_EQ(run(put_with(life(1), "l", std::byte{6}, there)).codes.front(), Code::kOk);
  cluster->world().run_for(milliseconds(2500));
  EXPECT_EQ(run(get(life(1), "k")), std::byte{5});
  cluster->world().run_for(seconds(2));
  EXPECT_EQ(run(get(life(1), "k")), std::nullopt);
  EXPECT_EQ(run(get(life(0), "l")), std::byte{6}) << "it went elsewhere";
  EXPECT_EQ(core().totals().segments, 1u);
  EXPECT_EQ(core().totals().clients, 2u);
  EXPECT_TRUE(life(0)->client->mounted());
  EXPECT_EQ(life(0)->client->extents(), nullptr);
  const auto again = run(life(0)->client->unmount_segment({}, cluster->now() + seconds(1)));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kSegmentNotFound);
}

TEST_F(Cases, RemovesWhatMatchesInSteps) {
  start(2);
  for (int i = 0; i < 60; ++i)
    ASSERT_EQ(run(put(life(i % 2), (i % 3 == 0 ? "a/" : "b/") + std::to_string(i))), Code::kOk);
  const auto removed = run(life(0)->client->remove_matching("^a/[0-9]+$", false, seconds(1)));
  ASSERT_TRUE(removed) << removed.error().message();
  EXPECT_EQ(*removed, 20u);
  const auto wrong = run(life(0)->client->remove_matching("(", false, seconds(1)));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(run(cluster->master_life()->master->remove_matching("b/1", true)).value_or(0), 8u);
  EXPECT_EQ(run(life(1)->client->remove_matching("", true, seconds(1))).value_or(0), 32u);
  EXPECT_EQ(core().totals().objects, 0u);
}

}  // namespace
}  // namespace mooncake::simulation
