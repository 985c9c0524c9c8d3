#include "doctor_machine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/random.h"
#include "memory/pool.h"
#include "os/local_socket.h"

namespace mooncake::doctor {

namespace {

#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x0010;  // Linux 5.1; newer than some C libraries' headers
#endif

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::string line_or_dash(const std::string& path) { return first_line(path).value_or("-"); }

std::optional<std::uint64_t> meminfo(std::string_view field) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size() + 1));
    std::uint64_t kib = 0;
    if (words >> kib) return kib;
  }
  return std::nullopt;
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

std::string bytes_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : format_size(limit);
}

Finding open_files() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  Finding finding{
      "open files limit (NOFILE)",
      fmt::format("{}, at most {}", limit_text(files.rlim_cur), limit_text(files.rlim_max))};
  if (files.rlim_cur < 4096) {
    finding.advice = "raise it (ulimit -n 65536): each connection and each mapped pool is one";
  }
  return finding;
}

Finding locked_memory() {
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  return {"locked memory limit (MEMLOCK)",
          bytes_text(locked.rlim_cur) + "; sockets and shared memory lock none"};
}

Finding sealing() {
  Finding finding{"memfd with seals", ""};
  const os::UniqueFd fd(::memfd_create("mooncake doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    finding.value = fmt::format("no memfd: {}", std::strerror(errno));
    finding.advice = "no pools, so no store and no mapped path: allow memfd_create in the sandbox";
  } else if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    finding.value = fmt::format("no seals: {}", std::strerror(errno));
    finding.advice = "peers map no memory whose size may change";
  } else if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    finding.value = "sizes only";
    finding.advice = "a kernel from 5.1 on also seals what peers may only read";
  } else {
    finding.value = "sizes, and writes by others";
  }
  return finding;
}

Finding pool_pages() {
  Finding finding{"2 MiB pages (MADV_COLLAPSE)", ""};
  memory::Pool::Options options;
  options.size = memory::kReadyFirst;
  options.name = "mooncake doctor";
  const auto pool = memory::Pool::create(options);
  if (!pool) {
    finding.value = pool.error().message();
    finding.advice = "pools need memfd_create(2) with sealing; allow it in the sandbox profile";
    return finding;
  }
  const auto begun = std::chrono::steady_clock::now();
  (*pool)->prepare((*pool)->size());
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
  const double per_gib = taken.count() * (1u << 30) / static_cast<double>((*pool)->size());
  if ((*pool)->backing() == memory::PageBacking::kSmall) {
    finding.value = "refused: pools have 4 KiB pages";
    finding.advice = "a kernel from 6.1 on collapses pool memory into huge pages by itself";
  } else {
    finding.value = fmt::format("works, {:.2f} s a GiB", per_gib);
  }
  return finding;
}

Finding pidfd() {
  const auto opened = os::open_process(::getpid());
  if (opened) return {"pidfd", "works"};
  return {"pidfd", opened.error().message(),
          "a peer's end can't be seen in time: shared memory isn't used"};
}

// Both need the same three sockets.
std::vector<Finding> local_sockets() {
  Finding names{"abstract Unix sockets", ""}, credentials{"SO_PEERCRED", "not tried"};
  const std::string name = fmt::format("mooncake-doctor-{:016x}", base::secure_random());
  const auto listener = os::LocalSocket::listen(name);
  const auto near = listener ? os::LocalSocket::connect(name) : fail(listener.error());
  const auto far = near ? listener->accept() : fail(near.error());
  if (!far) {
    names.value = far.error().message();
    names.advice = "processes of this host can't meet: they use TCP";
    return {names, credentials};
  }
  char space[64] = {};
  const bool known = ::readlink("/proc/self/ns/net", space, sizeof space - 1) > 0;
  names.value = fmt::format("work within network namespace {}", known ? space : "(unknown)");
  const auto peer = far->peer();
  if (!peer) {
    credentials.value = peer.error().message();
  } else {
    credentials.value = fmt::format("names user {} and pid {}", peer->uid, peer->pid);
  }
  if (!peer || peer->pid != ::getpid() || peer->uid != ::geteuid()) {
    credentials.advice = "who a peer is can't be told: memory isn't shared with it";
  }
  return {names, credentials};
}

}  // namespace

Finding ptrace_finding(std::optional<std::string_view> scope) {
  Finding finding{"Yama ptrace_scope", std::string(scope.value_or("no Yama"))};
  if (!scope || *scope == "0") {
    finding.value += ": processes of one user may copy from each other (process_vm_*)";
  } else {
    finding.value += *scope == "1"   ? ": only a parent may copy from its children"
                     : *scope == "2" ? ": only who has CAP_SYS_PTRACE may copy from others"
                                     : ": nobody may copy from others";
    finding.advice =
        "process_vm_* is refused between strangers: memory of pools is still mapped, other memory "
        "goes by TCP (sysctl kernel.yama.ptrace_scope=0 opens it)";
  }
  return finding;
}

std::vector<Finding> look_at_machine() {
  std::vector<Finding> findings;
  findings.push_back({"kernel", line_or_dash("/proc/sys/kernel/osrelease")});
  findings.push_back({"cores", fmt::format("{}", ::sysconf(_SC_NPROCESSORS_ONLN))});
  const std::uint64_t available = meminfo("MemAvailable").value_or(0) * 1024;
  findings.push_back({"memory available",
                      fmt::format("{:.1f} GiB", static_cast<double>(available) / (1u << 30)),
                      available < (1u << 30) ? "less than 1 GiB is left for pools" : ""});
  findings.push_back(open_files());
  findings.push_back(locked_memory());
  findings.push_back({"client ports", line_or_dash("/proc/sys/net/ipv4/ip_local_port_range")});
  return findings;
}

std::vector<Finding> look_at_shared_memory() {
  std::vector<Finding> findings;
  const auto boot = first_line("/proc/sys/kernel/random/boot_id");
  findings.push_back({"boot id", boot.value_or("unknown"),
                      boot ? "" : "peers can't tell that they are on one host: they use TCP"});
  findings.push_back(sealing());
  findings.push_back(pool_pages());
  findings.push_back(
      {"2 MiB pages for all", line_or_dash("/sys/kernel/mm/transparent_hugepage/shmem_enabled")});
  findings.push_back(
      {"reserved huge pages", fmt::format("{} of {} free", meminfo("HugePages_Free").value_or(0),
                                          meminfo("HugePages_Total").value_or(0))});
  findings.push_back(pidfd());
  for (Finding& finding : local_sockets())
    findings.push_back(std::move(finding));
  const auto scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  findings.push_back(
      ptrace_finding(scope ? std::optional<std::string_view>(*scope) : std::nullopt));
  return findings;
}

}  // namespace mooncake::doctor
