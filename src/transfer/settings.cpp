#include "transfer/settings.h"

namespace mooncake::transfer {

namespace {

constexpr Setting kSettings[] = {
    {.name = "force_tcp",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "sockets only, also between processes of one host",
     .env = "MC_FORCE_TCP"},
};

}  // namespace

std::span<const Setting> transfer_settings() { return kSettings; }

}  // namespace mooncake::transfer
