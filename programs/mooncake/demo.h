// `mooncake demo`: replays a trace of requests over a whole cluster on this machine.
#pragma once

#include <map>
#include <string>

namespace mooncake::demo {

// Exit statuses.
inline constexpr int kExitOk = 0;
inline constexpr int kExitWrongBytes = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitClusterFailed = 3;
inline constexpr int kExitSignal = 128;  // plus the signal that asked to stop

// `given`: option without dashes -> its text (demo_settings()).
int demo_command(const std::map<std::string, std::string>& given);

}  // namespace mooncake::demo
