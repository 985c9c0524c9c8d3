// What this machine, and the sandbox we are in, allow. Everything is tried where it can be, rather
// than derived from versions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor_report.h"

namespace mooncake::doctor {

std::vector<Finding> look_at_machine();
std::vector<Finding> look_at_shared_memory();

// What Yama's ptrace_scope (its text; none where the kernel has no Yama) means for copies between
// processes that aren't parent and child.
Finding ptrace_finding(std::optional<std::string_view> scope);

}  // namespace mooncake::doctor
