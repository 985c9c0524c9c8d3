// Names of networks and devices that callers may give as `protocol`.
#pragma once

#include <string>
#include <string_view>

#include "mooncake/result.h"

namespace mooncake::transfer {

// All names of the published package, separated by '|': of a kChoice setting.
inline constexpr std::string_view kProtocols =
    "tcp|rdma|efa|cxi|nvmeof|nvlink|nvlink_intra|hip|musa|maca|cxl|barex|nccl|ascend|"
    "ascend_direct|ubshmem|ub|sunrise_link";

// One of kProtocols. Gives the line to warn with, empty if there is none: sockets reach the peers
// of a fast network too. kNotSupported for what needs a device.
Result<std::string> check_protocol(const std::string& protocol);

}  // namespace mooncake::transfer
