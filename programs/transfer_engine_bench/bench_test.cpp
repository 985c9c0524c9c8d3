// The bench's lines are those of the published program to the letter; its flags come to a plan, or
// to an error that names one; a byte that is wrong is found wherever it is.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transfer_engine_bench/memory.h"
#include "transfer_engine_bench/report.h"
#include "transfer_engine_bench/settings.h"

namespace mooncake::bench {
namespace {

Result<Plan> plan_of(std::vector<std::string> flags) {
  SettingInputs inputs;
  flags.insert(flags.begin(), {"--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1:9",
                               "--segment_id=127.0.0.1:8"});
  inputs.flags = std::move(flags);
  MC_TRY(const Settings settings, Settings::resolve(bench_settings(), inputs));
  return make_plan(settings);
}

TEST(BenchReport, LinesAreThePublishedOnes) {
  EXPECT_EQ(*result_line({1.014, 314, 331'350'016}, "Gb", 3),
            "Test completed: duration 1.01, batch count 314, throughput 2.614 Gb/s");
  EXPECT_EQ(listening_line(true, "127.0.0.1:15002"),
            "Transfer Engine RPC using P2P handshake, listening on 127.0.0.1:15002");
  EXPECT_EQ(listening_line(false, "a:1"),
            "Transfer Engine RPC using new RPC mapping, listening on a:1");
}

TEST(BenchReport, UnitsAreDecimalBinaryAndOfBits) {
  const std::uint64_t bytes = 3u << 30;
  EXPECT_EQ(*rate_text(bytes, 2, "GiB", 2), "1.50 GiB/s");
  EXPECT_EQ(*rate_text(bytes, 2, "GB", 2), "1.61 GB/s");
  EXPECT_EQ(*rate_text(bytes, 2, "Gb", 1), "12.9 Gb/s");
  EXPECT_EQ(*rate_text(bytes, 2, "MiB", 0), "1536 MiB/s");
  EXPECT_EQ(*rate_text(bytes, 2, "KiB", 0), "1572864 KiB/s");
  EXPECT_EQ(*rate_text(1'000'000, 1, "MB", 0), "1 MB/s");
  EXPECT_EQ(*rate_text(1'000'000, 1, "Mb", 0), "8 Mb/s");
  EXPECT_EQ(*rate_text(1'000, 1, "KB", 0), "1 KB/s");
  EXPECT_EQ(*rate_text(1'000, 1, "Kb", 0), "8 Kb/s");
  EXPECT_EQ(*rate_text(0, 0, "GB", 2), "0.00 GB/s");
  const auto wrong = rate_text(1, 1, "gb", 2);
  EXPECT_NE(wrong.error().message().find("report_unit: 'gb' is not one of GB|GiB"),
            std::string::npos);
}

TEST(BenchPlan, DefaultsAreThePublishedOnes) {
  const auto plan = plan_of({});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->mode, Mode::kInitiator);
  EXPECT_EQ(plan->opcode, Opcode::kRead);
  EXPECT_EQ(plan->buffer_size, 1u << 30);
  EXPECT_EQ(plan->moved_at_once(), 12u * 128 * 65536);
  EXPECT_EQ(plan->duration, std::chrono::seconds(10));
  EXPECT_EQ(plan->engine.local_name, "127.0.0.1") << "its port is its own";
  ASSERT_EQ(plan->notices.size(), 1u) << "there is no rdma";
  EXPECT_NE(plan->notices[0].find("rdma"), std::string::npos);
}

TEST(BenchPlan, MemoryIsRaisedToWhatIsInFlight) {
  const auto plan = plan_of({"--buffer_size=1mb", "--protocol=tcp"});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->buffer_size, plan->moved_at_once());
  ASSERT_EQ(plan->notices.size(), 1u);
  EXPECT_NE(plan->notices[0].find("buffer_size: raised from 1048576 to 100663296"),
            std::string::npos);
}

TEST(BenchPlan, HardwareThatIsNotHereGetsANotice) {
  const auto plan = plan_of({"--protocol=tcp", "--device_name=mlx5_0", "--auto_discovery",
                             "--nic_priority_matrix=/x", "--backend=tent", "--gpu_id=-1"});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->notices.size(), 5u);
}

TEST(BenchPlan, WrongFlagsAreNamed) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--mode=observer"}, "mode"},
      {{"--operation=swap"}, "operation"},
      {{"--protocol=pigeon"}, "protocol"},
      {{"--protocol=nvlink"}, "protocol"},
      {{"--report_unit=TB"}, "report_unit"},
      {{"--threads=0"}, "threads"},
      {{"--block_size=0"}, "block_size"},
      {{"--duration=-1"}, "duration"},
      {{"--use_vram"}, "use_vram"},
      {{"--local_server_name=a:b:c"}, "local_server_name"},
      {{"--thread=1"}, "--threads"},
      {{"--batch_size=10000000", "--block_size=1tb"}, "block_size"},
      {{"--buffer_size=64tb"}, "buffer_size: 70368744177664 bytes are more than"},
      {{"--buffer_size=64tb", "--memory=private"}, "three quarters of the memory"},
      {{"--block_size=1gb", "--batch_size=4000"}, "threads * batch_size * block_size: "},
      {{"--metadata_server=127.0.0.1:2379"}, "--metadata_server=P2PHANDSHAKE"},
      {{"--segment_id="}, "segment_id"},
      {{"--segment_id=192.168.3.76"}, "segment_id"},
      {{"--segment_id=127.0.0.1:0"}, "segment_id: '127.0.0.1:0' has port 0"},
  };
  for (const auto& [flags, name] : cases) {
    const auto plan = plan_of(flags);
    ASSERT_FALSE(plan) << flags[0];
    EXPECT_NE(plan.error().message().find(name), std::string::npos) << plan.error().message();
  }
}

TEST(BenchMemory, AWrongByteIsFound) {
  for (const Side side : {Side::kTarget, Side::kInitiator}) {
    std::vector<std::byte> bytes(1003);
    fill(bytes, side);
    EXPECT_FALSE(first_wrong(bytes, side));
    const Side other = side == Side::kTarget ? Side::kInitiator : Side::kTarget;
    EXPECT_EQ(first_wrong(bytes, other), 0u);
    for (const std::size_t at : {0u, 7u, 8u, 500u, 999u, 1000u, 1002u}) {
      bytes[at] ^= std::byte{1};
      EXPECT_EQ(first_wrong(bytes, side), at);
      bytes[at] ^= std::byte{1};
    }
  }
}

}  // namespace
}  // namespace mooncake::bench
