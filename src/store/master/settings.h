// Settings of mooncake_master. Names and defaults are those of the published program.
#pragma once

#include <span>
#include <string>

#include "mooncake/config.h"
#include "net/address.h"
#include "store/master/server.h"

namespace mooncake::store::master {

std::span<const Setting> master_settings();

// What a checked table says, as the parts of the program want it.
struct MasterConfig {
  ServerOptions server;
  net::Address rpc;
  net::Address http;  // /metrics and /health
  bool serve_metadata = false;
  net::Address metadata;  // the embedded metadata server
};
// Checks what the table can't: settings that contradict each other. The error names both.
Result<MasterConfig> master_config(const Settings& settings);

}  // namespace mooncake::store::master
