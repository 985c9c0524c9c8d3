// A client's settings; names and defaults are those of the published setup(dict).
#include <fmt/format.h>

#include "mooncake/store.h"
#include "net/address.h"

namespace mooncake {

namespace {

constexpr Setting kSettings[] = {
    {.name = "local_hostname",
     .type = SettingType::kText,
     .fallback = "localhost",
     .help = "this client's host, or host:port to fix its port",
     .env = "MOONCAKE_LOCAL_HOSTNAME"},
    {.name = "metadata_server",
     .type = SettingType::kText,
     .fallback = "P2PHANDSHAKE",
     .help = "where engines find each other: P2PHANDSHAKE, or http://host:port/metadata",
     .env = "MOONCAKE_TE_META_DATA_SERVER"},
    {.name = "global_segment_size",
     .type = SettingType::kBytes,
     .fallback = "16MB",
     .help = "memory given to the pool; 0 = none",
     .minimum = 0,
     .maximum = 17592186044416.0,
     .env = "MOONCAKE_GLOBAL_SEGMENT_SIZE"},
    {.name = "master_server_addr",
     .type = SettingType::kText,
     .fallback = "127.0.0.1:50051",
     .help = "host:port of the Master, or `embedded` for a Master inside this process",
     .env = "MOONCAKE_MASTER"},
    {.name = "cluster_secret",
     .type = SettingType::kText,
     .fallback = "",
     .help = "what every process of the cluster must prove to know",
     .env = "MOONCAKE_CLUSTER_SECRET"},
    {.name = "timeout",
     .type = SettingType::kDuration,
     .fallback = "5000",
     .help = "deadline of a call that names none",
     .unit = "ms",
     .minimum = 1,
     .maximum = 3600000},
};

}  // namespace

std::span<const Setting> store_settings() { return kSettings; }

Result<StoreOptions> store_options(const Settings& settings) {
  StoreOptions options;
  options.local_name = settings.text("local_hostname");
  options.metadata_server = settings.text("metadata_server");
  options.global_segment_size = settings.bytes("global_segment_size");
  options.master_server_address = settings.text("master_server_addr");
  options.cluster_secret = settings.text("cluster_secret");
  options.timeout = settings.duration("timeout");
  if (options.global_segment_size != 0 && options.global_segment_size < 1024) {
    return fail(Code::kInvalidArgument, fmt::format("global_segment_size: {} is below 1024 bytes",
                                                    options.global_segment_size));
  }
  return options;
}

}  // namespace mooncake
