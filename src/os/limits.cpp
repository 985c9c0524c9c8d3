#include "os/limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace mooncake::os {

namespace {

constexpr const char* kRoot = "/sys/fs/cgroup";

std::optional<double> number_in(std::istream& from) {
  double number = 0;
  if (from >> number) return number;
  return std::nullopt;  // "max", or no such file
}

// A group's folder, and which version's files are in it.
struct Group {
  std::string folder;
  bool version_2 = false;
};

std::optional<double> cpu_quota_of(const Group& group) {
  std::optional<double> quota, period;
  if (group.version_2) {
    std::ifstream file(group.folder + "/cpu.max");
    quota = number_in(file);
    period = number_in(file);
  } else {
    std::ifstream quota_file(group.folder + "/cpu.cfs_quota_us");
    std::ifstream period_file(group.folder + "/cpu.cfs_period_us");
    quota = number_in(quota_file);
    period = number_in(period_file);
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> memory_limit_of(const Group& group) {
  std::ifstream file(group.folder + (group.version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto limit = number_in(file);
  constexpr double kNoLimit = 1ull << 62;  // version 1 writes a number near the largest
  return limit && *limit > 0 && *limit < kNoLimit ? limit : std::nullopt;
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return false;
}

// Of the groups that /proc/self/cgroup names for this controller, and of all above them. Inside a
// container those may not be there, or be the container's own.
template <typename LimitOf>
std::optional<double> smallest(std::string_view groups, const std::string& root,
                               std::string_view controller, LimitOf limit_of) {
  std::optional<double> found;
  std::istringstream lines{std::string(groups)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && !has_controller(controllers, controller)) continue;
    const std::string top = version_2 ? root : root + '/' + controllers;
    std::string path = line.substr(second + 1);
    for (;;) {
      while (path.ends_with('/'))
        path.pop_back();
      const auto limit = limit_of(Group{top + path, version_2});
      if (limit) found = std::min(*limit, found.value_or(*limit));
      const std::size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return found;
}

std::string own_groups() {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream groups;
  groups << file.rdbuf();
  return groups.str();
}

}  // namespace

std::optional<double> cpu_quota(std::string_view groups, const std::string& root) {
  return smallest(groups, root, "cpu", cpu_quota_of);
}

std::optional<std::uint64_t> memory_limit(std::string_view groups, const std::string& root) {
  const auto limit = smallest(groups, root, "memory", memory_limit_of);
  if (!limit) return std::nullopt;
  return static_cast<std::uint64_t>(*limit);
}

unsigned usable_processors() {
  unsigned count = 1;
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) {
    count = static_cast<unsigned>(std::max(1, CPU_COUNT(&mask)));
  }
  const auto quota = cpu_quota(own_groups(), kRoot);
  if (!quota || *quota >= count) return count;
  return std::max(1u, static_cast<unsigned>(*quota));
}

std::uint64_t usable_memory() {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const std::uint64_t installed = page * static_cast<std::uint64_t>(std::max(1L, pages));
  return std::max(page, std::min(installed, memory_limit(own_groups(), kRoot).value_or(installed)));
}

}  // namespace mooncake::os
