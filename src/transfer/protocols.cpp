#include "transfer/protocols.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mooncake::transfer {

namespace {

constexpr std::array<std::string_view, 4> kNetworks = {"rdma", "efa", "cxi", "barex"};

}  // namespace

Result<std::string> check_protocol(const std::string& protocol) {
  if (protocol == "tcp") return std::string();
  if (std::find(kNetworks.begin(), kNetworks.end(), protocol) == kNetworks.end()) {
    return fail(Code::kNotSupported,
                fmt::format("protocol: '{}' needs a device that is not supported here; tcp or rdma "
                            "choose the best path there is",
                            protocol));
  }
  return fmt::format("protocol: there is no {} here; taking the best path there is", protocol);
}

}  // namespace mooncake::transfer
