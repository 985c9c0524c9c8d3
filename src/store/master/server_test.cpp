// The Master behind RPC, on in-process pairs with a fake clock: a client's life from mount to
// expiry, hostile bodies, the epoch across restarts and failing disks, and what the metrics say.
#include "store/master/server.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "net/net_testing.h"
#include "store/master/http_front.h"
#include "store/master/messages_testing.h"

namespace mooncake::store::master {
namespace {

using namespace testing;
using net::Method;
using std::chrono::seconds;

constexpr const char* kEpochFile = "/state/epoch";

// Time passes whenever someone asks for it.
class CreepingExecutor final : public os::Executor, private base::Clock {
 public:
  explicit CreepingExecutor(os::SimExecutor& world) : world_(world) {}
  bool post(std::function<void()> work) override { return world_.post(std::move(work)); }
  os::TimerId run_at(base::TimePoint when, std::function<void()> work) override {
    return world_.run_at(when, std::move(work));
  }
  bool cancel(os::TimerId timer) override { return world_.cancel(timer); }
  bool on_this_thread() const override { return world_.on_this_thread(); }
  const base::Clock& clock() const override { return *this; }

  base::Duration step{};

 private:
  base::TimePoint now() const override { return world_.now() + (passed_ += step); }
  std::int64_t unix_seconds() const override { return world_.clock().unix_seconds(); }

  os::SimExecutor& world_;
  mutable base::Duration passed_{};
};

// Keeps the routes, to be asked without sockets.
class RoutesOnly final : public net::HttpServer {
 public:
  void route(std::string method, std::string path, Handler handler) override {
    if (method == "GET") pages[path] = std::move(handler);
  }
  Result<net::Address> listen(const net::Address& at) override { return at; }
  void stop() override {}

  std::map<std::string, Handler> pages;
};

base::Task<std::string> whole_page(const net::HttpServer::Handler* page,
                                   const net::HttpRequest* request) {
  net::HttpResponse response = co_await (*page)(*request);
  std::string text = std::move(response.body);
  while (response.more) {
    const std::string piece = co_await response.more();
    if (piece.empty()) break;
    text += piece;
  }
  co_return text;
}

struct ServerTest : ::testing::Test {
  ServerTest() {
    options.identity = net::testing::identity(100);
    options.epoch_file = kEpochFile;
    options.core.eviction_high_watermark = 1;
  }
  void start() {
    auto made = MasterServer::create({clock, net.random, net.network, net.disk}, options);
    ASSERT_TRUE(made) << made.error().message();
    master = *std::move(made);
    net::RpcClient::Options with;
    with.identity = net::testing::identity(1);
    client = net::RpcClient::create(
        net.env(), [this](base::TimePoint) { return connect(); }, std::move(with));
  }
  base::Task<Result<std::unique_ptr<net::Channel>>> connect() {
    auto [mine, theirs] = net::make_channel_pair(net.executor);
    master->serve(std::move(theirs));
    co_return std::move(mine);
  }
  base::Task<bool> end() {
    if (client) co_await client->stop();
    if (master) co_await master->stop();
    co_return true;
  }
  void stop() {
    net.executor.run(end());
    net.executor.run_ready();
    client.reset();
    master.reset();
  }
  void TearDown() override { stop(); }

  Result<net::Bytes> call(Method method, const net::Bytes& body) {
    net::CallOptions within;
    within.deadline = net.in(seconds(1));
    Result<net::Reply> reply = net.executor.run(client->call(method, body, within));
    if (!reply) return fail(std::move(reply).error());
    return std::move(reply->body);
  }
  // The reply's table, checked; the bytes are kept until the next call.
  template <typename Table>
  const Table* table(Method method, const net::Bytes& body) {
    Result<net::Bytes> reply = call(method, body);
    EXPECT_TRUE(reply) << reply.error().message();
    if (!reply) return nullptr;
    kept = *std::move(reply);
    flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(kept.data()), kept.size());
    EXPECT_TRUE(verifier.VerifyBuffer<Table>(nullptr));
    return flatbuffers::GetRoot<Table>(kept.data());
  }
  std::vector<Code> codes(Method method, const net::Bytes& body) {
    const auto* reply = table<wire::CodesReply>(method, body);
    std::vector<Code> all;
    if (reply == nullptr) return all;
    for (const std::uint16_t code : *reply->codes())
      all.push_back(static_cast<Code>(code));
    return all;
  }
  Code refused(Method method, const net::Bytes& body) {
    const Result<net::Bytes> reply = call(method, body);
    return reply ? Code::kOk : reply.error().code();
  }
  void put(const std::string& key, std::uint64_t first) {
    const auto* granted = table<wire::GrantReply>(
        Method::kGrant, grant_message({.first = first}, Keys({key}), {5000}, 1));
    ASSERT_EQ(granted->codes()->Get(0), 0);
    const Finish finish{
        {granted->versions()->Get(0)}, {1}, {granted->segments()->Get(0)->incarnation()}};
    EXPECT_EQ(codes(Method::kPublish, finish_message({.first = first + 1}, Keys({key}), finish)),
              std::vector<Code>{Code::kOk});
  }
  bool exposes(const std::string& line) {
    return master->metrics().expose().find("\n" + line + "\n") != std::string::npos;
  }

  net::testing::SimNet net;
  CreepingExecutor clock{net.executor};
  ServerOptions options;
  std::unique_ptr<MasterServer> master;
  std::unique_ptr<net::RpcClient> client;
  net::Bytes kept;
};

TEST_F(ServerTest, HeartbeatsAreSeveralWithinTheTimeToLive) {
  options.core.client_ttl = std::chrono::seconds(2);
  start();
  const auto* mounted =
      table<wire::MountReply>(Method::kMount, mount_message(1, 2, 0, {{.id = 1}}));
  EXPECT_EQ(mounted->heartbeat_ms(), 500u);
}

TEST_F(ServerTest, FromMountToExpiry) {
  start();
  EXPECT_EQ(refused(Method::kHeartbeat, heartbeat_message(1, 1)), Code::kClientNotFound);
  const auto* mounted = table<wire::MountReply>(
      Method::kMount, mount_message(1, 2, 0, {{.id = 1}, {.id = 1, .size = 1}}));
  EXPECT_EQ(mounted->epoch(), static_cast<std::uint32_t>(master->core().epoch()));
  EXPECT_EQ(mounted->client_ttl_ms(), 10'000u);
  EXPECT_EQ(mounted->heartbeat_ms(), 1000u);
  ASSERT_EQ(mounted->codes()->size(), 2u);
  EXPECT_EQ(mounted->codes()->Get(0), 0);
  EXPECT_EQ(static_cast<Code>(mounted->codes()->Get(1)), Code::kInvalidArgument);

  put("k", 1);
  const auto* located =
      table<wire::LocateReply>(Method::kLocate, keys_message(1, Keys({"none", "k", "k"})));
  EXPECT_EQ(static_cast<Code>(located->codes()->Get(0)), Code::kObjectNotFound);
  EXPECT_EQ(located->codes()->Get(1), 0);
  EXPECT_EQ(located->sizes()->Get(1), 5000u);
  EXPECT_EQ(located->replica_counts()->Get(1), 1);
  EXPECT_EQ(located->locations()->size(), 2u);
  EXPECT_EQ(located->segments()->Get(0)->region_key(), 77u);
  EXPECT_EQ(located->lease_ms(), 10'000u);
  EXPECT_EQ(codes(Method::kExist, keys_message(1, Keys({"k", "none"}))),
            (std::vector<Code>{Code::kOk, Code::kObjectNotFound}));
  EXPECT_EQ(codes(Method::kRemove, remove_message({.first = 10}, Keys({"k"}), false)),
            std::vector<Code>{Code::kObjectHasLease});
  EXPECT_EQ(codes(Method::kRemove, remove_message({.first = 11}, Keys({"k"}), true)),
            std::vector<Code>{Code::kOk});
  EXPECT_EQ(refused(Method::kHeartbeat, heartbeat_message(1, 3)), Code::kOk);
  EXPECT_EQ(refused(Method::kMount, mount_message(1, 1, 0, {})), Code::kStaleCommand);

  EXPECT_EQ(master->core().totals().clients, 1u);
  net.executor.run_for(seconds(11));
  EXPECT_EQ(master->core().totals().clients, 0u);
  EXPECT_EQ(refused(Method::kHeartbeat, heartbeat_message(1, 4)), Code::kClientNotFound);
  EXPECT_EQ(codes(Method::kRemove, remove_message({.first = 12}, Keys({"a", "b"}), false)),
            (std::vector<Code>{Code::kClientNotFound, Code::kClientNotFound}));
  EXPECT_TRUE(master->core().verify());
}

TEST_F(ServerTest, AShortageIsExplained) {
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  const auto* granted = table<wire::GrantReply>(
      Method::kGrant, grant_message({}, Keys({"large"}), {200 * memory::kExtentUnit}, 1));
  EXPECT_EQ(static_cast<Code>(granted->codes()->Get(0)), Code::kNoSpace);
  EXPECT_EQ(granted->needed(), 200 * memory::kExtentUnit);
  EXPECT_TRUE(exposes("master_put_start_alloc_failures_total 1"));
}

TEST_F(ServerTest, AStepOfASweepEndsAfterAWhile) {
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  for (std::uint64_t i = 0; i < 20; ++i)
    put("k" + std::to_string(i), 1 + 2 * i);
  clock.step = std::chrono::microseconds(500);
  const auto* step =
      table<wire::SweepReply>(Method::kSweep, sweep_message({.first = 100}, "k", true, 0));
  EXPECT_GE(step->removed(), 1u);
  EXPECT_LE(step->removed(), 5u);
  EXPECT_EQ(step->cursor(), step->removed());
  clock.step = {};
  step = table<wire::SweepReply>(Method::kSweep,
                                 sweep_message({.first = 101}, "k", true, step->cursor()));
  EXPECT_EQ(step->cursor(), kSweepEnd);
  EXPECT_EQ(master->core().totals().objects, 0u);
}

// Whoever knows it could speak in the client's name.
TEST_F(ServerTest, NoPageAndNoReplyShowsAClientsId) {
  start();
  const std::uint64_t id = 0xFEDCBA9876543211;
  table<wire::MountReply>(Method::kMount, mount_message(id, 1, 0, {{.id = 1}}));
  call(Method::kGrant, grant_message({.client = id, .first = 1}, Keys({"k"}), {5000}, 1));
  RoutesOnly http;
  add_master_routes(http, *master, {});
  EXPECT_GT(http.pages.size(), 10u);
  net::HttpRequest request;
  request.query = {{"key", "k"}, {"keys", "k"}, {"segment", "host1"}};
  std::string all;
  for (const auto& [path, page] : http.pages)
    all += net.executor.run(whole_page(&page, &request));
  const std::string name = std::to_string(master->name_of(ClientId{id}));
  EXPECT_NE(all.find("\"client_id\":\"0-" + name + "\""), std::string::npos) << all;
  EXPECT_EQ(all.find(std::to_string(id)), std::string::npos);
  // To others: how to read and write the memory, what became of a key.
  const std::string bytes(reinterpret_cast<const char*>(&id), sizeof(id));
  for (const Result<net::Bytes>& reply :
       {call(Method::kGrant, grant_message({.client = 2, .first = 9}, Keys({"l"}), {5000}, 1)),
        call(Method::kMount, mount_message(2, 1, 0, {})),
        call(Method::kGrant, grant_message({.client = 2, .first = 10}, Keys({"l"}), {5000}, 1)),
        call(Method::kWhy, why_message(Keys({"k", "l"}), 32))}) {
    ASSERT_TRUE(reply);
    const std::string text(reinterpret_cast<const char*>(reply->data()), reply->size());
    EXPECT_EQ(text.find(bytes), std::string::npos);
  }
}

TEST_F(ServerTest, HostileBodiesFailAlone) {
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  for (const Method method :
       {Method::kMount, Method::kUnmount, Method::kHeartbeat, Method::kGrant, Method::kPublish,
        Method::kRevoke, Method::kLocate, Method::kExist, Method::kRemove}) {
    EXPECT_EQ(refused(method, {}), Code::kInvalidArgument);
    EXPECT_EQ(refused(method, net::Bytes(100, std::byte{0xEE})), Code::kInvalidArgument);
  }
  EXPECT_EQ(master->rpc_counters().connections, 1u);
  put("k", 1);
  EXPECT_TRUE(master->core().verify());
}

TEST_F(ServerTest, ARepeatedMessageGetsTheSameReply) {
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  const net::Bytes grant = grant_message({.first = 7}, Keys({"k", "l"}), {1, 2}, 1);
  const Result<net::Bytes> first = call(Method::kGrant, grant);
  const Result<net::Bytes> again = call(Method::kGrant, grant);
  ASSERT_TRUE(first && again);
  EXPECT_EQ(*first, *again);
  // Its segment goes: the answer stays, but leads nowhere.
  call(Method::kMount, mount_message(1, 2, 0, {}));
  call(Method::kMount, mount_message(1, 3, 0, {{.id = 2}}));
  const auto* late = table<wire::GrantReply>(Method::kGrant, grant);
  for (const wire::Segment* segment : *late->segments()) {
    EXPECT_EQ(segment->size(), 0u);
    EXPECT_EQ(segment->incarnation(), 0u);
  }
}

TEST_F(ServerTest, TheEpochRisesOverRestarts) {
  start();
  const Epoch first = master->core().epoch();
  EXPECT_GE(static_cast<std::int64_t>(first), net.executor.clock().unix_seconds());
  stop();
  start();
  const Epoch second = master->core().epoch();
  EXPECT_GT(second, first);
  // A client that has seen a far higher one is above what is stored: the limit follows.
  const std::uint32_t seen = static_cast<std::uint32_t>(second) + 100'000;
  const Code code = refused(Method::kMount, mount_message(1, 1, seen, {}));
  EXPECT_TRUE(code == Code::kOk || code == Code::kBusy);
  EXPECT_EQ(refused(Method::kMount, mount_message(1, 1, seen, {})), Code::kOk);
  EXPECT_GT(master->core().epoch(), Epoch{seen});
  const std::string stored = *net.disk.read(kEpochFile);
  EXPECT_GT(std::stoull(stored), seen);
  EXPECT_EQ(stored.back(), '\n');
  stop();
  start();
  EXPECT_GT(master->core().epoch(), Epoch{seen});
}

TEST_F(ServerTest, ABrokenEpochFileOrDiskStopsTheStart) {
  ASSERT_TRUE(net.disk.write_atomically(kEpochFile, "12x\n"));
  auto made = MasterServer::create(net.env(), options);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find(kEpochFile), std::string::npos);
  ASSERT_TRUE(net.disk.write_atomically(kEpochFile, "5\n"));
  net.disk.fail_next_write(os::FakeDisk::Fault::kBeforeReplace);
  EXPECT_FALSE(MasterServer::create(net.env(), options));
  options.epoch_file.clear();
  start();
}

TEST_F(ServerTest, AnEpochThatCouldNotBeStoredIsNotUsed) {
  start();
  const Epoch before = master->core().epoch();
  net.disk.fail_next_write(os::FakeDisk::Fault::kBeforeReplace);
  const std::uint32_t seen = static_cast<std::uint32_t>(before) + 100'000;
  EXPECT_EQ(refused(Method::kMount, mount_message(1, 1, seen, {})), Code::kBusy);
  EXPECT_EQ(master->core().epoch(), before);
  EXPECT_EQ(master->core().totals().clients, 0u);
  net.executor.run_for(seconds(1));
  EXPECT_EQ(refused(Method::kMount, mount_message(1, 1, seen, {})), Code::kOk);
}

TEST_F(ServerTest, AnAbsurdEpochIsRefused) {
  start();
  const Epoch before = master->core().epoch();
  for (const std::uint32_t seen : {0xFFFFFFFFu, 0xF0000000u}) {
    EXPECT_NE(refused(Method::kMount, mount_message(1, 1, seen, {})), Code::kOk);
    net.executor.run_for(seconds(1));
  }
  EXPECT_EQ(master->core().epoch(), before);
  EXPECT_EQ(refused(Method::kMount, mount_message(2, 1, 0, {})), Code::kOk);
}

TEST_F(ServerTest, MetricsSayWhatIsThere) {
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}, {.id = 2}}));
  put("a", 1);
  put("b", 3);
  codes(Method::kExist, keys_message(1, Keys({"a", "none"})));
  call(Method::kLocate, keys_message(1, Keys({"a", "b", "none"})));
  EXPECT_TRUE(exposes("master_key_count 2"));
  EXPECT_TRUE(exposes("master_active_clients 1"));
  EXPECT_TRUE(exposes("master_allocated_bytes 16384"));
  EXPECT_TRUE(exposes("master_total_capacity_bytes 819200"));
  EXPECT_TRUE(exposes("master_put_start_requests_total 2"));
  EXPECT_TRUE(exposes("master_put_end_requests_total 2"));
  EXPECT_TRUE(exposes("master_put_end_failures_total 0"));
  EXPECT_TRUE(exposes("master_batch_exist_key_requests_total 1"));
  EXPECT_TRUE(exposes("master_batch_exist_key_partial_successes_total 1"));
  EXPECT_TRUE(exposes("master_batch_get_replica_list_failed_items_total 1"));
  EXPECT_TRUE(exposes("total_get_nums_ 3"));
  EXPECT_TRUE(exposes("valid_get_nums_ 2"));
  EXPECT_TRUE(exposes("segment_total_capacity_bytes{segment=\"host1\"} 409600"));
}

TEST_F(ServerTest, AMountSaysWhichNameIsWrong) {
  start();
  const auto words = [this](const net::Bytes& mount) {
    const Result<net::Bytes> reply = call(Method::kMount, mount);
    return reply ? std::string() : reply.error().message();
  };
  EXPECT_NE(words(mount_message(1, 1, 0, {{.name = "a\"} 1\nforged 7\n"}}))
                .find("the name of a segment holds a control character"),
            std::string::npos);
  EXPECT_NE(words(mount_message(1, 1, 0, {}, "\xFF")).find("the client's name is not UTF-8"),
            std::string::npos);
  EXPECT_EQ(master->core().totals().clients, 0u);
}

TEST_F(ServerTest, SegmentsOfOneNameAreOneRowAndNamesAreEscaped) {
  start();
  const std::vector<Given> segments = {{.id = 1, .name = "h\xC3\xB6st\"\\:1"}};
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, segments));
  // A second client of the same engine.
  net::Bytes second = packed([](FlatBufferBuilder& b) {
    const wire::Uuid id(2, 1);
    std::vector more = {
        wire::CreateSegmentDirect(b, "h\xC3\xB6st\"\\:1", "host", &id, 1, 1, 4096, 8192, 77, 8192)};
    return wire::CreateMountRequestDirect(b, 2, 1, 0, "client", &more);
  });
  table<wire::MountReply>(Method::kMount, second);
  EXPECT_EQ(master->core().totals().segments, 2u);
  EXPECT_TRUE(exposes("segment_total_capacity_bytes{segment=\"h\xC3\xB6st\\\"\\\\:1\"} 417792"))
      << master->metrics().expose();
  EXPECT_TRUE(exposes("segment_allocated_bytes{segment=\"h\xC3\xB6st\\\"\\\\:1\"} 0"));
}

TEST_F(ServerTest, SaysWhatBecameOfKeys) {
  options.core.remembered_events = 4;
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  put("k", 1);
  call(Method::kRemove, remove_message({.first = 3}, Keys({"k"}), true));
  net.executor.run_for(seconds(2));
  const auto* reply = table<wire::WhyReply>(Method::kWhy, why_message(Keys({"k", "other"}), 8));
  ASSERT_NE(reply, nullptr);
  ASSERT_EQ(reply->reports()->size(), 2u);
  const auto* events = reply->reports()->Get(0)->events();
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ(events->Get(0)->kind(), static_cast<int>(KeyEventKind::kRemoved));
  EXPECT_GE(events->Get(0)->age_ms(), 2000u);
  EXPECT_EQ(events->Get(0)->segment()->str(), "host1");
  EXPECT_EQ(events->Get(1)->writer()->str(), "client");
  EXPECT_EQ(reply->reports()->Get(1)->events()->size(), 0u);
  EXPECT_FALSE(reply->has_forgotten());
  EXPECT_EQ(reply->remembered_ms(), reply->uptime_ms());
  EXPECT_TRUE(exposes("master_why_requests_total 1"));
  // Since its start it remembers everything; later only so much.
  EXPECT_EQ(master->why("other", 8).reason, MissReason::kNeverStored);
  for (std::uint64_t i = 0; i < 4; ++i)
    put("next" + std::to_string(i), 10 + 2 * i);
  EXPECT_EQ(master->why("k", 8).reason, MissReason::kForgotten);
}

TEST_F(ServerTest, FindsWithALeaseOrWithoutOne) {
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  put("a", 1);
  put("b", 3);
  EXPECT_EQ(master->find("a", MasterServer::Lease::kNone).size, 5000u);
  EXPECT_EQ(master->find("b", MasterServer::Lease::kTaken).replicas, 1);
  EXPECT_EQ(master->find("c", MasterServer::Lease::kTaken).code, Code::kObjectNotFound);
  EXPECT_EQ(codes(Method::kRemove, remove_message({.first = 5}, Keys({"a", "b"}), false)),
            (std::vector<Code>{Code::kOk, Code::kObjectHasLease}));
}

TEST_F(ServerTest, ReportsWhatIsStoredAtADistance) {
  options.report_every = seconds(10);
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  put("a", 1);
  const base::LogLevel before = base::log_level();
  base::set_log_level(base::LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  net.executor.run_for(seconds(9));
  const std::string early = ::testing::internal::GetCapturedStderr();
  ::testing::internal::CaptureStderr();
  net.executor.run_for(seconds(2));
  const std::string text = ::testing::internal::GetCapturedStderr();
  base::set_log_level(before);
  EXPECT_EQ(early.find("Memory: "), std::string::npos) << early;
  EXPECT_NE(text.find("Memory: 8 KiB of 400 KiB (2.0%) | Keys: 1 "), std::string::npos) << text;
  EXPECT_EQ(master->summary().find('\n'), std::string::npos);
}

TEST_F(ServerTest, OnlyGrantedObjectsCountAsValues) {
  start();
  table<wire::MountReply>(Method::kMount, mount_message(1, 1, 0, {{.id = 1}}));
  call(Method::kGrant, grant_message({}, Keys({"a", "b", "c"}), {1000, ~std::uint64_t{0}, 0}, 1));
  EXPECT_TRUE(exposes("master_value_size_bytes_sum 1000")) << master->metrics().expose();
  EXPECT_TRUE(exposes("master_value_size_bytes_count 1"));
}

TEST_F(ServerTest, StopsWhileItTicks) {
  start();
  net.executor.run_for(std::chrono::milliseconds(125));
  stop();
  net.executor.run_for(seconds(1));
}

}  // namespace
}  // namespace mooncake::store::master
