// Proves that segment documents are read as they are written, that those of other engines of the
// family are understood or refused with a reason, and that lookups find, publish and withdraw.
#include "transfer/lookup.h"

#include <gtest/gtest.h>

#include <map>

#include "os/sim_executor.h"
#include "transfer/segment_document.h"

namespace mooncake::transfer {
namespace {

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

}  // namespace
}  // namespace mooncake::transfer
