#include "settings.h"

#include <fmt/format.h>

#include "net/interface.h"
#include "transfer/protocols.h"

namespace mooncake::client_program {

namespace {

using enum SettingType;

constexpr std::uint16_t kMasterPort = 50051;
constexpr std::string_view kAnyHost = "0.0.0.0";

constexpr Setting kSettings[] = {
    {.name = "host",
     .type = kAddress,
     .fallback = "0.0.0.0",
     .help = "host by which others reach this segment, or host:port to fix its port; 0.0.0.0 = the "
             "address of the interface that leads to the Master"},
    {.name = "metadata_server",
     .type = kText,
     .fallback = "http://127.0.0.1:8080/metadata",
     .help = "where engines find each other: http://host:port/metadata, or P2PHANDSHAKE"},
    {.name = "master_server_address",
     .type = kAddress,
     .fallback = "127.0.0.1:50051",
     .help = "host:port of the Master"},
    {.name = "protocol",
     .type = kChoice,
     .fallback = "tcp",
     .help = "tcp and rdma choose the best path there is",
     .allowed = transfer::kProtocols},
    {.name = "global_segment_size",
     .type = kBytes,
     .fallback = "4 GB",
     .help = "memory given to the pool",
     .minimum = 1024,
     .maximum = 17592186044416.0},
    {.name = "enable_http_server",
     .type = kBool,
     .fallback = "false",
     .help = "serve /health, /metrics and /metrics/summary"},
    {.name = "http_port",
     .type = kInteger,
     .fallback = "9300",
     .help = "port of these, on `host`",
     .minimum = 1,
     .maximum = 65535},
    {.name = "cluster_secret",
     .type = kText,
     .fallback = "",
     .help =
         "what every process of the cluster must prove to know; better given by the environment",
     .env = "MOONCAKE_CLUSTER_SECRET"},
    {.name = "log_level",
     .type = kChoice,
     .fallback = "info",
     .help = "least severe lines that are written to stderr",
     .allowed = "debug|info|warning|error|off"},

    // What would change a promise.
    {.name = "enable_offload",
     .type = kBool,
     .fallback = "false",
     .help = "objects are also written to this machine's disk",
     .support = Support::kRefused},
    {.name = "tenant_id",
     .type = kText,
     .fallback = "default",
     .help = "whose objects are seen",
     .support = Support::kRefused},

    // What has nothing to act on here.
    {.name = "port",
     .type = kInteger,
     .fallback = "50052",
     .help = "port for clients without memory of their own, which are not served",
     .minimum = 0,
     .maximum = 65535,
     .support = Support::kAcceptedIgnored},
    {.name = "threads",
     .type = kInteger,
     .fallback = "1",
     .help = "threads that serve them",
     .minimum = 0,
     .support = Support::kAcceptedIgnored},
    {.name = "local_buffer_size",
     .type = kBytes,
     .fallback = "0",
     .help = "memory through which they exchange values",
     .minimum = 0,
     .support = Support::kAcceptedIgnored},
    {.name = "start_offload_rpc_server",
     .type = kBool,
     .fallback = "true",
     .help = "whether the disk is served to others",
     .support = Support::kAcceptedIgnored},
    {.name = "device_names",
     .type = kText,
     .fallback = "",
     .help = "names of network cards",
     .support = Support::kAcceptedIgnored},
    {.name = "use_mmap_arena_allocator",
     .type = kBool,
     .fallback = "false",
     .help = "how buffers are mapped",
     .support = Support::kAcceptedIgnored},
    {.name = "mmap_arena_pool_size",
     .type = kBytes,
     .fallback = "8589934592",
     .help = "how much of them",
     .minimum = 0,
     .support = Support::kAcceptedIgnored},
};

// The name under which others reach this segment.
Result<std::string> reachable_name(const Settings& settings, const net::Address& master) {
  const std::string& given = settings.text("host");
  const Result<net::Address> parsed = net::parse_address(given, 1);
  if (!parsed || parsed->host != kAnyHost) return given;
  Result<std::string> host = net::address_towards(master);
  if (!host) return fail(std::move(host).error().with_context("host: 0.0.0.0"));
  const bool has_port = given.size() > kAnyHost.size();
  return has_port ? net::to_string({*host, parsed->port}) : *host;
}

}  // namespace

std::span<const Setting> client_settings() { return kSettings; }

Result<Plan> make_plan(const Settings& settings) {
  Plan plan;
  plan.notices = settings.notices();
  MC_TRY(const std::string notice, transfer::check_protocol(settings.text("protocol")));
  if (!notice.empty()) plan.notices.push_back(notice);
  const std::string& metadata = settings.text("metadata_server");
  if (metadata != "P2PHANDSHAKE" && !metadata.starts_with("http://")) {
    return fail(Code::kInvalidArgument, fmt::format("metadata_server: '{}' is not P2PHANDSHAKE or "
                                                    "http://host:port/metadata",
                                                    metadata));
  }
  const std::string& master = settings.text("master_server_address");
  MC_TRY(const net::Address at, net::parse_address(master, kMasterPort));
  if (at.port == 0) {
    return fail(Code::kInvalidArgument,
                "master_server_address: '" + master + "': nobody is at port 0");
  }
  if (at.host == "embedded") {
    return fail(Code::kInvalidArgument,
                "master_server_address: 'embedded' would be a Master that nobody else reaches");
  }
  MC_TRY(plan.store.local_name, reachable_name(settings, at));
  plan.store.metadata_server = metadata;
  plan.store.master_server_address = master;
  plan.store.global_segment_size = settings.bytes("global_segment_size");
  plan.store.cluster_secret = settings.text("cluster_secret");
  if (settings.boolean("enable_http_server")) {
    MC_TRY(const net::Address host, net::parse_address(settings.text("host"), 1));
    plan.http = net::Address(host.host, static_cast<std::uint16_t>(settings.integer("http_port")));
  }
  return plan;
}

}  // namespace mooncake::client_program
