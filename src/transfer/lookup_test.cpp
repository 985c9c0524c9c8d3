// Proves that segment documents are read as they are written, that those of other engines of the
// family are understood or refused with a reason, that lookups find, publish and withdraw, and that
// an engine keeps its name published.
#include "transfer/lookup.h"

#include <gtest/gtest.h>

#include <map>

#include "net/sim_network.h"
#include "os/disk.h"
#include "os/event.h"
#include "os/sim_executor.h"
#include "transfer/engine.h"
#include "transfer/segment_document.h"

namespace mooncake::transfer {
namespace {

using namespace std::chrono_literals;

constexpr base::TimePoint kNever = base::TimePoint::max();

TEST(SegmentDocument, IsReadAsWritten) {
  SegmentDocument document;
  document.name = "10.0.0.1:15000";
  document.data = net::Address("fe80::1%eth0", 15000);
  document.own_framing = true;
  const auto read = decode_segment(encode_segment(document, 1'700'000'000));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->name, document.name);
  EXPECT_EQ(read->data, document.data);
  EXPECT_TRUE(read->own_framing);
  EXPECT_NE(encode_segment(document, 1'700'000'000).find("2023-11-14 22:13:20"), std::string::npos);
  const auto address = decode_rpc_meta(encode_rpc_meta(document.data));
  ASSERT_TRUE(address);
  EXPECT_EQ(*address, document.data);
}

TEST(SegmentDocument, ReadsThePublishedForm) {
  const auto read = decode_segment(
      R"({"name":"10.0.0.1:15428","protocol":"tcp","rdma_server_name":"","tcp_data_host":"10.0.0.1",)"
      R"("tcp_data_port":16012,"tcp_proto_version":2,"timestamp":"x","buffers":[)"
      R"({"name":"10.0.0.1:15428","addr":140245231,"length":1048576}],"more":[1,2]})");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->data, net::Address("10.0.0.1", 16012));
  EXPECT_FALSE(read->own_framing);
}

TEST(SegmentDocument, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"null", "not a JSON object"},
      {R"({"name":"a"})", "protocol"},
      {R"({"name":"a","protocol":"rdma"})", "rdma"},
      {R"({"name":5,"protocol":"tcp"})", "'name'"},
      {R"({"protocol":["tcp","rdma"]})", "'protocol'"},
      {R"({"protocol":"tcp","tcp_data_port":70000})", "'tcp_data_port'"},
      {R"({"protocol":"tcp","tcp_data_port":-1})", "'tcp_data_port'"},
      {R"({"protocol":"tcp","tcp_data_port":"1"})", "'tcp_data_port'"},
      {R"({"protocol":"tcp","buffers":{}})", "'buffers'"},
      {R"({"protocol":"tcp","buffers":[5]})", "buffer"},
      {R"({"protocol":"tcp","buffers":[{"addr":1,"length":1}]})", "'name'"},
      {R"({"protocol":"tcp","buffers":[{"name":"a","addr":0,"length":1}]})", "'addr'"},
      {R"({"protocol":"tcp","buffers":[{"name":"a","addr":1}]})", "'length'"},
  };
  for (const auto& [text, what] : cases) {
    const auto read = decode_segment(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), Code::kMetadataError) << text;
    EXPECT_NE(read.error().message().find(what), std::string::npos) << read.error().message();
  }
  EXPECT_FALSE(decode_rpc_meta(R"({"ip_or_host_name":"","rpc_port":1})"));
  EXPECT_FALSE(decode_rpc_meta(R"({"ip_or_host_name":"a","rpc_port":0})"));
}

TEST(SegmentDocument, KeysFollowTheNames) {
  EXPECT_EQ(rpc_meta_key("a:1"), "mooncake/rpc_meta/a:1");
  EXPECT_EQ(segment_key("a:1"), "mooncake/ram/a:1");
  EXPECT_EQ(segment_key("nvmeof/a"), "mooncake/nvmeof/a");
}

class MapStore final : public metastore::Metastore {
 public:
  explicit MapStore(std::map<std::string, std::string>& map) : map_(map) {}
  const metastore::MetastoreCapabilities& capabilities() const override { return capabilities_; }
  base::Task<Result<std::string>> get(std::string key, base::TimePoint, os::CancelToken*) override {
    const auto it = map_.find(key);
    if (it == map_.end()) co_return fail(Code::kObjectNotFound, key);
    co_return it->second;
  }
  base::Task<Result<void>> put(std::string key, std::string value, base::TimePoint) override {
    map_[key] = value;
    co_return Result<void>();
  }
  base::Task<Result<void>> remove(std::string key, base::TimePoint) override {
    if (map_.erase(key) == 0) co_return fail(Code::kObjectNotFound, key);
    co_return Result<void>();
  }

 private:
  metastore::MetastoreCapabilities capabilities_;
  std::map<std::string, std::string>& map_;
};

class LookupTest : public testing::Test {
 protected:
  Result<net::Address> find(SegmentLookup& lookup, const std::string& name) {
    return executor_.run(lookup.find(name, kNever));
  }
  os::SimExecutor executor_{1};
  std::map<std::string, std::string> map_;
};

TEST_F(LookupTest, P2pTakesTheNameForTheAddress) {
  const auto lookup = make_p2p_lookup();
  EXPECT_EQ(*find(*lookup, "10.0.0.1:15000"), net::Address("10.0.0.1", 15000));
  EXPECT_EQ(*find(*lookup, "[::1]:7"), net::Address("::1", 7));
  for (const char* name : {"", "10.0.0.1", "nobody:0", "a:b:c"}) {
    const auto found = find(*lookup, name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code(), Code::kSegmentNotFound);
  }
}

TEST_F(LookupTest, MetastoreFindsWhatWasPublished) {
  const auto lookup = make_metastore_lookup(std::make_unique<MapStore>(map_), executor_.clock());
  const net::Address address("10.0.0.1", 15000);
  EXPECT_EQ(find(*lookup, "one").error().code(), Code::kSegmentNotFound);
  ASSERT_TRUE(executor_.run(lookup->publish("one", address, kNever)));
  EXPECT_EQ(map_.size(), 2u);
  EXPECT_EQ(*find(*lookup, "one"), address);
  // A document without data address: that of rpc_meta counts.
  map_["mooncake/ram/one"] = R"({"protocol":"tcp","mooncake_frame":1})";
  EXPECT_EQ(*find(*lookup, "one"), address);
  map_["mooncake/ram/one"] = R"({"protocol":"tcp"})";
  EXPECT_EQ(find(*lookup, "one").error().code(), Code::kNotSupported);
  map_["mooncake/ram/one"] = "garbage";
  EXPECT_EQ(find(*lookup, "one").error().code(), Code::kMetadataError);
  ASSERT_TRUE(executor_.run(lookup->withdraw("one", kNever)));
  EXPECT_TRUE(map_.empty());
  EXPECT_TRUE(executor_.run(lookup->withdraw("one", kNever))) << "it is gone either way";
}

TEST_F(LookupTest, MetastoreTellsWhatHasBecomeOfADocument) {
  using Standing = SegmentLookup::Standing;
  const auto lookup = make_metastore_lookup(std::make_unique<MapStore>(map_), executor_.clock());
  const net::Address address("10.0.0.1", 15000);
  const auto standing = [&] {
    return executor_.run(lookup->standing("one", address, kNever, nullptr)).value();
  };
  EXPECT_TRUE(lookup->may_forget());
  EXPECT_EQ(standing(), Standing::kMissing);
  ASSERT_TRUE(executor_.run(lookup->publish("one", address, kNever)));
  EXPECT_EQ(standing(), Standing::kPublished);
  for (const std::string& key : {segment_key("one"), rpc_meta_key("one")}) {
    const std::string text = map_.at(key);
    for (const char* other : {"garbage", R"({"protocol":"tcp"})"}) {
      map_[key] = other;
      EXPECT_EQ(standing(), Standing::kTaken) << other;
    }
    map_.erase(key);
    EXPECT_EQ(standing(), Standing::kMissing);
    map_[key] = text;
  }
  ASSERT_TRUE(executor_.run(lookup->publish("one", net::Address("10.0.0.1", 15001), kNever)));
  EXPECT_EQ(standing(), Standing::kTaken);
  EXPECT_FALSE(make_p2p_lookup()->may_forget());
}

// A metadata server, as an engine meets it. Where `silent`, nothing is answered before the
// deadline.
struct Service {
  std::map<std::string, std::string> map;
  bool down = false;
  bool silent = false;
  std::size_t questions = 0;
};

class ServiceStore final : public metastore::Metastore {
 public:
  ServiceStore(Service& service, os::Executor& executor)
      : service_(service), store_(service.map), never_(executor) {}
  const metastore::MetastoreCapabilities& capabilities() const override {
    return store_.capabilities();
  }
  base::Task<Result<std::string>> get(std::string key, base::TimePoint deadline,
                                      os::CancelToken* cancel) override {
    ++service_.questions;
    MC_CO_CHECK(co_await admit(deadline, cancel));
    co_return co_await store_.get(std::move(key), deadline, cancel);
  }
  base::Task<Result<void>> put(std::string key, std::string value,
                               base::TimePoint deadline) override {
    MC_CO_CHECK(co_await admit(deadline, nullptr));
    co_return co_await store_.put(std::move(key), std::move(value), deadline);
  }
  base::Task<Result<void>> remove(std::string key, base::TimePoint deadline) override {
    MC_CO_CHECK(co_await admit(deadline, nullptr));
    co_return co_await store_.remove(std::move(key), deadline);
  }

 private:
  base::Task<Result<void>> admit(base::TimePoint deadline, os::CancelToken* cancel) {
    if (service_.silent) {
      co_await never_.wait(deadline, cancel);
      co_return fail(os::is_cancelled(cancel) ? Code::kCancelled : Code::kDeadlineExceeded);
    }
    if (service_.down) co_return fail(Code::kMetadataError, "nobody listens");
    co_return Result<void>();
  }

  Service& service_;
  MapStore store_;
  os::Event never_;
};

class PublishedEngine : public testing::Test {
 protected:
  ~PublishedEngine() override { stop(); }

  void start(bool p2p = false) {
    testing::internal::CaptureStderr();
    EngineOptions options;
    options.identity.incarnation = static_cast<base::Incarnation>(7);
    options.listen = net::Address("here", 7000);
    if (!p2p) {
      options.lookup = make_metastore_lookup(std::make_unique<ServiceStore>(service_, executor_),
                                             executor_.clock());
    }
    const os::Env env = {host_, random_, world_.host("here", host_), disk_};
    engine_ = *executor_.run(Engine::start(env, std::move(options)));
  }
  void stop() {
    if (!engine_) return;
    executor_.run(engine_->stop());
    engine_.reset();
    log();
    testing::internal::GetCapturedStderr();
  }
  // What has been logged since the last time.
  std::string log() {
    std::string text = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return text;
  }
  static std::size_t count(std::string_view text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at)
      ++found;
    return found;
  }

  os::SimExecutor executor_{1};
  os::SimHost host_{executor_};
  base::Random random_{1};
  os::FakeDisk disk_;
  net::SimWorld world_{executor_, random_};
  Service service_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(PublishedEngine, IsPublishedAgainWhenItsServerHasLostIt) {
  start();
  const auto published = service_.map;
  ASSERT_EQ(published.size(), 2u);
  executor_.run_for(60s);
  EXPECT_EQ(log(), "");
  EXPECT_GE(service_.questions, 24u);
  EXPECT_LE(service_.questions, 32u);
  service_.map.clear();
  executor_.run_for(6s);
  EXPECT_EQ(service_.map.size(), 2u);
  executor_.run_for(60s);
  const std::string said = log();
  EXPECT_EQ(count(said, "published again"), 1u) << said;
  EXPECT_EQ(count(said, "\n"), 1u) << said;
  stop();
  EXPECT_TRUE(service_.map.empty());
  executor_.run_for(60s);
  EXPECT_TRUE(service_.map.empty());
}

TEST_F(PublishedEngine, SaysOnceThatItsServerIsAwayAndOnceThatItIsBack) {
  start();
  for (int round = 0; round < 2; ++round) {
    service_.down = true;
    service_.map.clear();
    executor_.run_for(300s);
    std::string said = log();
    EXPECT_EQ(count(said, "nobody listens"), 1u) << said;
    EXPECT_EQ(count(said, "\n"), 1u) << said;
    service_.down = false;
    executor_.run_for(60s);
    said = log();
    EXPECT_EQ(count(said, "is back"), 1u) << said;
    EXPECT_EQ(count(said, "published again"), 1u) << said;
    EXPECT_EQ(count(said, "\n"), 2u) << said;
    EXPECT_EQ(service_.map.size(), 2u);
  }
}

TEST_F(PublishedEngine, LeavesTheDocumentOfAnother) {
  start();
  std::map<std::string, std::string> others;
  const auto other = make_metastore_lookup(std::make_unique<MapStore>(others), executor_.clock());
  const net::Address elsewhere("elsewhere", 7000);
  ASSERT_TRUE(executor_.run(other->publish("here:7000", elsewhere, kNever)));
  service_.map = others;
  executor_.run_for(60s);
  EXPECT_EQ(service_.map, others);
  const std::string said = log();
  EXPECT_EQ(count(said, "another engine"), 1u) << said;
  EXPECT_EQ(count(said, "\n"), 1u) << said;
  stop();
  EXPECT_EQ(service_.map, others) << "nor is it withdrawn";
}

TEST_F(PublishedEngine, StopsWhileItsServerIsSilent) {
  start();
  service_.silent = true;
  executor_.run_for(6s);
  const base::TimePoint before = executor_.now();
  stop();
  EXPECT_LE(executor_.now() - before, 1s) << "for the withdrawal";
}

TEST_F(PublishedEngine, LeavesNoTimerWhereTheNameIsTheAddress) {
  start(true);
  const base::TimePoint before = executor_.now();
  EXPECT_FALSE(executor_.run_until([] { return false; }, before + 1h));
  EXPECT_EQ(executor_.now(), before);
}

}  // namespace
}  // namespace mooncake::transfer
