// Proves that a member of the cluster that writes under a version which no Master granted can spoil
// a segment for a moment only: its owner gives the memory anew, under another key.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "cluster.h"

namespace mooncake::simulation {
namespace {

using base::Task;

Task<Code> write_forged(Life* life, const store::SegmentAddress* segment) {
  std::vector<std::byte> bytes(segment->size);
  const base::MutableBuffer all(bytes);
  memory::ExtentRecord record;
  record.version = (std::uint64_t{1} << 63) - 1;
  record.size = bytes.size();
  record.kind = memory::kPut;
  record.key_length = 6;
  transfer::EngineRequest request;
  request.target = life->engine->open_address(segment->name, *net::parse_address(segment->name, 0));
  request.key_given = true;
  request.slice.opcode = Opcode::kWrite;
  request.slice.local = {&all, 1};
  request.slice.remote = segment->base;
  request.slice.length = bytes.size();
  request.slice.key = static_cast<memory::RegionKey>(segment->region_key);
  request.slice.guard = record.version;
  request.slice.extent = segment->base;
  request.slice.record = &record;
  request.slice.record_key = "forged";
  co_await life->engine->transfer({&request, 1}, life->host.now() + std::chrono::seconds(5));
  co_return request.slice.code;
}

Task<Code> put(Life* life, std::string key) {
  const std::vector<std::byte> value(5000, std::byte{7});
  const ConstBytes part(value);
  const PutItem item{key, {&part, 1}};
  const store::PutOutcome outcome =
      co_await life->client->put({&item, 1}, {}, life->host.now() + std::chrono::seconds(5));
  co_return outcome.codes.front();
}

TEST(Forgery, AForgedVersionSpoilsASegmentForAMomentOnly) {
  base::set_log_level(base::LogLevel::kOff);
  ClusterOptions options;
  options.clients = 1;
  Cluster cluster(options);
  cluster.start_master();
  cluster.start_client(0);
  Life* life = cluster.client(0);
  ASSERT_NE(life, nullptr);
  os::SimExecutor& world = cluster.world();

  const store::SegmentAddress before = cluster.core().segments().front().address;
  ASSERT_EQ(world.run(write_forged(life, &before)), Code::kOk);
  EXPECT_NE(world.run(put(life, "while it is spoilt")), Code::kOk);

  const auto renewed = [&] {
    const auto segments = cluster.core().segments();
    return !segments.empty() && segments.front().address.incarnation != before.incarnation;
  };
  ASSERT_TRUE(world.run_until(renewed, cluster.now() + std::chrono::seconds(10)))
      << "not mounted anew within 10 s";
  EXPECT_NE(cluster.core().segments().front().address.region_key, before.region_key);
  EXPECT_EQ(cluster.core().totals().forged_versions, 1u);
  EXPECT_EQ(world.run(put(life, "afterwards")), Code::kOk);
  EXPECT_NE(world.run(write_forged(life, &before)), Code::kOk) << "the old key is void";
  cluster.stop();
}

}  // namespace
}  // namespace mooncake::simulation
