#include "transfer_engine_bench/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "net/address.h"
#include "os/limits.h"
#include "transfer/protocols.h"
#include "transfer_engine_bench/report.h"

namespace mooncake::bench {

namespace {

using enum SettingType;

constexpr std::string_view kP2p = "P2PHANDSHAKE";
constexpr double kMostBytes = 70368744177664.0;  // 64 TiB

constexpr Setting kSettings[] = {
    {.name = "mode",
     .type = kChoice,
     .fallback = "initiator",
     .help = "initiator moves data, target offers memory until it is interrupted",
     .allowed = "initiator|target"},
    {.name = "local_server_name",
     .type = kText,
     .fallback = "",
     .help = "host, or host:port, under which this engine is found; empty = this host's name"},
    {.name = "metadata_server",
     .type = kText,
     .fallback = "192.168.3.77:2379",
     .help = "P2PHANDSHAKE or http://host:port/metadata"},
    {.name = "segment_id",
     .type = kText,
     .fallback = "192.168.3.76",
     .help = "initiator: name of the target, as it has printed it"},
    {.name = "operation",
     .type = kChoice,
     .fallback = "read",
     .help = "which way the initiator moves data",
     .allowed = "read|write"},
    {.name = "protocol",
     .type = kChoice,
     .fallback = "rdma",
     .help = "tcp and rdma choose the best path there is; MC_FORCE_TCP=1 means sockets only",
     .allowed = transfer::kProtocols},
    {.name = "buffer_size",
     .type = kBytes,
     .fallback = "1073741824",
     .help = "memory on each side; raised to what all blocks in flight need",
     .minimum = 1,
     .maximum = kMostBytes},
    {.name = "batch_size",
     .type = kInteger,
     .fallback = "128",
     .help = "blocks of one batch",
     .minimum = 1,
     .maximum = 1e7},
    {.name = "block_size",
     .type = kBytes,
     .fallback = "65536",
     .help = "bytes of one block",
     .minimum = 1,
     .maximum = kMostBytes},
    {.name = "duration",
     .type = kDuration,
     .fallback = "10",
     .help = "how long the initiator measures",
     .unit = "s",
     .minimum = 0,
     .maximum = 86400},
    {.name = "threads",
     .type = kInteger,
     .fallback = "12",
     .help = "of the initiator, one batch at a time each",
     .minimum = 1,
     .maximum = 1024},
    {.name = "report_unit",
     .type = kText,
     .fallback = "GB",
     .help = "of the throughput: GB, GiB, Gb, MB, MiB, Mb, KB, KiB or Kb; b is a bit"},
    {.name = "report_precision",
     .type = kInteger,
     .fallback = "2",
     .help = "decimals of the throughput",
     .minimum = 0,
     .maximum = 17},

    // Of ours.
    {.name = "memory",
     .type = kChoice,
     .fallback = "pool",
     .help = "pool: processes of one host map each other's; private: like any memory of a user",
     .allowed = "pool|private"},
    {.name = "verify",
     .type = kBool,
     .fallback = "false",
     .help = "initiator: looks at every byte afterwards"},
    {.name = "cluster_secret",
     .type = kText,
     .fallback = "",
     .help = "what both sides must know",
     .env = "MOONCAKE_CLUSTER_SECRET"},

    {.name = "device_name",
     .type = kText,
     .fallback = "mlx5_2",
     .help = "names of network cards",
     .support = Support::kAcceptedIgnored},
    {.name = "nic_priority_matrix",
     .type = kText,
     .fallback = "",
     .help = "which network card is near which memory",
     .support = Support::kAcceptedIgnored},
    {.name = "auto_discovery",
     .type = kBool,
     .fallback = "false",
     .help = "whether network cards are looked for",
     .support = Support::kAcceptedIgnored},
    {.name = "backend",
     .type = kChoice,
     .fallback = "classic",
     .help = "there is one engine",
     .allowed = "classic|tent",
     .support = Support::kAcceptedIgnored},
    {.name = "init_mem",
     .type = kBool,
     .fallback = "true",
     .help = "memory is always filled",
     .support = Support::kAcceptedIgnored},
    {.name = "gpu_id",
     .type = kInteger,
     .fallback = "0",
     .help = "which GPU has the memory",
     .support = Support::kAcceptedIgnored},
    {.name = "use_vram",
     .type = kBool,
     .fallback = "false",
     .help = "memory of a GPU",
     .support = Support::kRefused},
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// With P2PHANDSHAKE the published engine takes a port of its own, whatever name it was given.
Result<std::string> local_name(const std::string& given, bool p2p) {
  if (!p2p) return given;
  auto address = net::parse_address(given, 1);
  if (!address) return fail(std::move(address).error().with_context("local_server_name"));
  return address->host;
}

Result<void> check_metadata_server(const std::string& server) {
  if (server == kP2p || server.starts_with("http://") || server.starts_with("memory://")) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("metadata_server: '{}' is not P2PHANDSHAKE or http://host:port/metadata; "
                          "--metadata_server=P2PHANDSHAKE needs no server",
                          server));
}

// With P2PHANDSHAKE a target's name is its address.
Result<void> check_segment(const Plan& plan, bool p2p) {
  if (plan.mode == Mode::kTarget) return {};
  const std::string& segment = plan.segment;
  if (segment.empty()) return fail(Code::kInvalidArgument, "segment_id: must be given");
  if (!p2p) return {};
  const auto address = net::parse_address(segment, 0);
  if (!address) return fail(Error(address.error()).with_context("segment_id"));
  if (address->port != 0) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("segment_id: '{}' has port 0; 1..65535 is needed", segment));
}

// What is filled must be there: the kernel promises more, and ends processes later. What the engine
// counts by itself may be any part of the machine, as memory_budget says.
Result<void> check_memory(const Plan& plan, bool raised) {
  const std::uint64_t has = os::usable_memory();
  const std::uint64_t most = plan.pool_memory ? has : has / 4 * 3;
  if (plan.buffer_size <= most) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("{}: {} bytes are more than {}, {} of the memory that there is here",
                          raised ? "threads * batch_size * block_size" : "buffer_size",
                          plan.buffer_size, most, plan.pool_memory ? "all" : "three quarters"));
}

}  // namespace

std::span<const Setting> bench_settings() { return kSettings; }

Result<Plan> make_plan(const Settings& settings) {
  Plan plan;
  plan.mode = settings.text("mode") == "target" ? Mode::kTarget : Mode::kInitiator;
  const std::string& name = settings.text("local_server_name");
  plan.engine.metadata_server = settings.text("metadata_server");
  MC_CHECK(check_metadata_server(plan.engine.metadata_server));
  const bool p2p = plan.engine.metadata_server == kP2p;
  MC_TRY(plan.engine.local_name, local_name(name.empty() ? host_name() : name, p2p));
  plan.engine.cluster_secret = settings.text("cluster_secret");
  plan.opcode = settings.text("operation") == "write" ? Opcode::kWrite : Opcode::kRead;
  plan.segment = settings.text("segment_id");
  MC_CHECK(check_segment(plan, p2p));
  plan.buffer_size = settings.bytes("buffer_size");
  plan.block_size = settings.bytes("block_size");
  plan.batch_size = static_cast<std::uint64_t>(settings.integer("batch_size"));
  plan.threads = static_cast<std::uint64_t>(settings.integer("threads"));
  plan.duration = settings.duration("duration");
  plan.unit = settings.text("report_unit");
  plan.precision = static_cast<int>(settings.integer("report_precision"));
  plan.pool_memory = settings.text("memory") == "pool";
  plan.verify = settings.boolean("verify");
  plan.notices = settings.notices();
  MC_CHECK(rate_text(0, 1, plan.unit, 0));
  MC_TRY(std::string notice, transfer::check_protocol(settings.text("protocol")));
  if (!notice.empty()) plan.notices.push_back(std::move(notice));
  const double needed = static_cast<double>(plan.threads) * static_cast<double>(plan.batch_size) *
                        static_cast<double>(plan.block_size);
  if (needed > kMostBytes) {
    return fail(Code::kInvalidArgument,
                fmt::format("threads * batch_size * block_size: {:.0f} bytes in flight", needed));
  }
  const bool raised = plan.buffer_size < plan.moved_at_once();
  if (raised) {
    plan.notices.push_back(fmt::format(
        "buffer_size: raised from {} to {}, which threads * batch_size * block_size need",
        plan.buffer_size, plan.moved_at_once()));
    plan.buffer_size = plan.moved_at_once();
  }
  MC_CHECK(check_memory(plan, raised));
  return plan;
}

}  // namespace mooncake::bench
