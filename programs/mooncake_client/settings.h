// Flags of mooncake_client; names and defaults are those of the published program.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mooncake/config.h"
#include "mooncake/store.h"
#include "net/address.h"

namespace mooncake::client_program {

std::span<const Setting> client_settings();

struct Plan {
  StoreOptions store;
  std::optional<net::Address> http;  // where its pages are served
  std::vector<std::string> notices;
};

// kInvalidArgument and kNotSupported name the flag.
Result<Plan> make_plan(const Settings& settings);

}  // namespace mooncake::client_program
