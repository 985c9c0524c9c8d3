#include "transfer/settings.h"

namespace mooncake::transfer {

namespace {

constexpr Setting kSettings[] = {
    {.name = "force_tcp",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "sockets only, also between processes of one host",
     .env = "MC_FORCE_TCP"},
    {.name = "tcp_lanes_per_peer",
     .type = SettingType::kInteger,
     .fallback = "2",
     .help = "connections to one peer, over which large batches are spread",
     .minimum = 1,
     .maximum = 16,
     .env = "MC_TCP_LANES_PER_PEER"},
    {.name = "min_rpc_port",
     .type = SettingType::kInteger,
     .fallback = "15000",
     .help =
         "an engine that chooses its port takes one from here on, where this or the next is set",
     .minimum = 1024,
     .maximum = 65535,
     .env = "MC_MIN_RPC_PORT"},
    {.name = "max_rpc_port",
     .type = SettingType::kInteger,
     .fallback = "17000",
     .help = "last of these ports",
     .minimum = 1024,
     .maximum = 65535,
     .env = "MC_MAX_RPC_PORT"},
    {.name = "memory_budget",
     .type = SettingType::kBytes,
     .fallback = "0",
     .help = "bytes for pools, receive buffers, quarantine and mappings of dead peers; 0 = three "
             "quarters of the machine's memory, or of what its control group may use",
     .minimum = 0,
     .env = "MOONCAKE_MEMORY_BUDGET"},
    {.name = "copy_helpers",
     .type = SettingType::kInteger,
     .fallback = "-1",
     .help = "threads that help callers with large copies within a host; 0 = none, -1 = as many as "
             "the CPU quota leaves, at most 4",
     .minimum = -1,
     .maximum = 64,
     .env = "MOONCAKE_COPY_HELPERS"},
};

}  // namespace

std::span<const Setting> transfer_settings() { return kSettings; }

}  // namespace mooncake::transfer
