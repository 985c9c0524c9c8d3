#include "demo_memory.h"

#include <fmt/format.h>
#include <mooncake/config.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace mooncake::demo {

namespace {

// A window's size, unless one block is larger: every request of the published traces fits, at 256
// KiB a block.
constexpr std::uint64_t kSlotBytes = std::uint64_t{64} << 20;
// Code, stacks, tables and socket buffers of one process.
constexpr std::uint64_t kProcessBytes = std::uint64_t{32} << 20;

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// The number behind `key` in lines of "key   number ...".
std::optional<std::uint64_t> number_of(std::string_view text, std::string_view key) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  if (in >> value) return value;  // "max" is no limit
  return std::nullopt;
}

// What one group of version 2 still allows. Page cache it could drop isn't counted as taken.
std::optional<std::uint64_t> group_room(const std::string& group, std::string_view limit,
                                        std::string_view usage, std::string_view cache) {
  const auto most = number_in(fmt::format("{}/{}", group, limit));
  const auto used = number_in(fmt::format("{}/{}", group, usage));
  if (!most || !used) return std::nullopt;
  const auto statistics = read_file(group + "/memory.stat");
  const std::uint64_t droppable =
      statistics ? std::min(number_of(*statistics, cache).value_or(0), *used) : 0;
  const std::uint64_t taken = *used - droppable;
  return *most > taken ? *most - taken : 0;
}

// The smallest room of a group and all above it.
std::uint64_t groups_room(const std::string& root, std::string path, std::string_view limit,
                          std::string_view usage, std::string_view cache) {
  std::uint64_t room = std::numeric_limits<std::uint64_t>::max();
  for (;;) {
    while (path.ends_with('/'))
      path.pop_back();
    room = std::min(room, group_room(root + path, limit, usage, cache).value_or(room));
    if (path.empty()) return room;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

MemoryPlan plan_memory(const DemoOptions& options, std::span<const workload::Request> requests) {
  std::uint64_t longest = 1;
  for (const auto& request : requests) {
    longest = std::max<std::uint64_t>(longest, request.hash_ids.size());
  }
  MemoryPlan plan;
  plan.slot_blocks =
      std::min(longest, std::max<std::uint64_t>(1, kSlotBytes / options.block_bytes));
  plan.slot_bytes = plan.slot_blocks * options.block_bytes;
  plan.segments_total = kNodes * options.segment_bytes;
  plan.buffers_total = (kPrefillNodes + kDecodeNodes * kDecodeSlots) * plan.slot_bytes;
  // The nodes, the Master and this process.
  plan.total = plan.segments_total + plan.buffers_total + (kNodes + 2) * kProcessBytes;
  return plan;
}

Result<void> check_fits(const MemoryPlan& plan, const DemoOptions& options,
                        std::uint64_t available) {
  if (plan.total <= available) return {};
  const auto mebi = [](std::uint64_t bytes) {
    return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20));
  };
  return fail(Code::kInvalidArgument,
              fmt::format("segment-size: {} in each of {} nodes, with buffers of {} for blocks of "
                          "{}, makes {}; {} are free. Lower --segment-size or --block-bytes",
                          format_size(options.segment_bytes), kNodes, mebi(plan.buffers_total),
                          format_size(options.block_bytes), mebi(plan.total), mebi(available)));
}

Result<std::uint64_t> available_memory(const std::string& proc, const std::string& cgroup) {
  const auto info = read_file(proc + "/meminfo");
  const auto free_kib = info ? number_of(*info, "MemAvailable:") : std::nullopt;
  if (!free_kib) return fail(Code::kSystemCall, proc + "/meminfo does not say MemAvailable");
  std::uint64_t room = *free_kib * 1024;
  std::istringstream groups(read_file(proc + "/self/cgroup").value_or(""));
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" in version 2, "9:memory:/path" in version 1.
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      room = std::min(room,
                      groups_room(cgroup, path, "memory.max", "memory.current", "inactive_file"));
    } else if (controllers == "memory") {
      room = std::min(room, groups_room(cgroup + "/memory", path, "memory.limit_in_bytes",
                                        "memory.usage_in_bytes", "total_inactive_file"));
    }
  }
  return room;
}

std::uint64_t memory_of(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/smaps_rollup", pid));
  return text ? number_of(*text, "Pss:").value_or(0) * 1024 : 0;
}

}  // namespace mooncake::demo
