// What this process may use of the machine: the machine itself, bounded by control groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mooncake::os {

// Processors that it may keep busy: those it may run on, but no more than its CPU quota; at
// least 1.
unsigned usable_processors();
// Bytes of memory; at least a page.
std::uint64_t usable_memory();

// The smallest limits of the control groups that `groups` (the text of /proc/self/cgroup) names,
// and of those above them, whose files are below `root`. Of version 1 and 2. None when nothing is
// limited.
std::optional<double> cpu_quota(std::string_view groups, const std::string& root);
std::optional<std::uint64_t> memory_limit(std::string_view groups, const std::string& root);

}  // namespace mooncake::os
