// The limit that the machine sets: the same bytes between two processes by the barest means. One
// line of JSON for each run, so that bench/compare/transfer.py can interleave it with the sides.
//   bare_loops tcp|vm|mapped read|write LENGTH BATCH SECONDS
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "memory/copy.h"
#include "memory/pool.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kRegion = 128u << 20;
constexpr int kTcpBuffer = 4 << 20;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

struct Job {
  std::string way;
  bool write = true;
  std::size_t length = 0;
  std::size_t batch = 1;
  double seconds = 0.3;
};

struct Tally {
  std::size_t calls = 0;
  double seconds = 0;
  std::vector<double> times;
};

// Calls `once(offset)` for as long as the job says, going round in the region.
template <typename Once>
Tally repeat(const Job& job, Once once) {
  Tally tally;
  const std::size_t step = job.length * job.batch;
  const auto begun = Clock::now();
  auto last = begun;
  for (std::size_t offset = 0; std::chrono::duration<double>(last - begun).count() < job.seconds;
       offset = offset + 2 * step > kRegion ? 0 : offset + step) {
    once(offset);
    const auto now = Clock::now();
    tally.times.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
    ++tally.calls;
  }
  tally.seconds = std::chrono::duration<double>(last - begun).count();
  return tally;
}

void print(const Job& job, Tally tally) {
  std::sort(tally.times.begin(), tally.times.end());
  const double bytes = static_cast<double>(tally.calls * job.length * job.batch);
  std::printf(
      "{\"seconds\": %.6f, \"calls\": %zu, \"failures\": 0, \"bytes\": %.0f, \"p50_us\": %.3f, "
      "\"p99_us\": %.3f}\n",
      tally.seconds, tally.calls, bytes, tally.times[tally.times.size() / 2] * 1e6,
      tally.times[tally.times.size() * 99 / 100] * 1e6);
}

char* private_region() {
  void* const region =
      ::mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED) die("mmap");
  std::memset(region, 1, kRegion);
  return static_cast<char*>(region);
}

// A child that makes `region` its own, all pages of it, before this returns; then it does `work`,
// and waits to be killed.
template <typename Work>
pid_t start_child(char* region, Work work) {
  int ready[2];
  if (::pipe(ready) != 0) die("pipe");
  const pid_t child = ::fork();
  if (child < 0) die("fork");
  char byte = 0;
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::memset(region, 2, kRegion);
    if (::write(ready[1], &byte, 1) != 1) die("write");
    work();
    ::pause();
    std::_Exit(0);
  }
  if (::read(ready[0], &byte, 1) != 1) die("read");
  std::memset(region, 3, kRegion);  // what was shared with the child until now
  return child;
}

void end_child(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

void all(int fd, char* at, std::size_t size, bool sending) {
  while (size > 0) {
    const ssize_t n = sending ? ::send(fd, at, size, 0) : ::recv(fd, at, size, 0);
    if (n <= 0) die("tcp");
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}

struct Ask {
  std::uint64_t offset, length;
};

// A question of 16 bytes, the payload in one direction, one byte of answer after a write.
void serve_tcp(int fd, const Job& job, char* region) {
  Ask ask{};
  while (::recv(fd, &ask, sizeof ask, MSG_WAITALL) == sizeof ask) {
    all(fd, region + ask.offset, ask.length, !job.write);
    if (job.write) all(fd, region, 1, true);
  }
  std::_Exit(0);
}

Tally over_tcp(const Job& job) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    die("listen");
  }
  const auto tune = [](int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kTcpBuffer, sizeof kTcpBuffer);
  };
  char* const region = private_region();
  const pid_t child = start_child(region, [&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    tune(fd);
    serve_tcp(fd, job, region);
  });
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  tune(fd);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) die("connect");
  Tally tally = repeat(job, [&](std::size_t offset) {
    const Ask ask{offset, job.length * job.batch};
    if (job.write) {
      iovec parts[] = {{const_cast<Ask*>(&ask), sizeof ask}, {region + offset, ask.length}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      const ssize_t n = ::sendmsg(fd, &message, 0);
      if (n < static_cast<ssize_t>(sizeof ask)) die("sendmsg");
      const auto sent = static_cast<std::size_t>(n) - sizeof ask;
      all(fd, region + offset + sent, ask.length - sent, true);
      char done = 0;
      all(fd, &done, 1, false);
    } else {
      if (::send(fd, &ask, sizeof ask, 0) != sizeof ask) die("send");
      all(fd, region + offset, ask.length, false);
    }
  });
  ::close(fd);
  ::waitpid(child, nullptr, 0);
  return tally;
}

Tally by_process_vm(const Job& job) {
  char* const region = private_region();  // at the same address in the child
  const pid_t child = start_child(region, [] {});
  std::vector<iovec> here(job.batch), there(job.batch);
  Tally tally = repeat(job, [&](std::size_t offset) {
    for (std::size_t i = 0; i < job.batch; ++i) {
      here[i] = {region + offset + i * job.length, job.length};
      there[i] = here[i];
    }
    for (std::size_t at = 0; at < job.batch; at += 1024) {
      const std::size_t count = std::min<std::size_t>(1024, job.batch - at);
      const auto call = job.write ? ::process_vm_writev : ::process_vm_readv;
      if (call(child, &here[at], count, &there[at], count, 0) < 0) die("process_vm");
    }
  });
  end_child(child);
  return tally;
}

// Through a mapping of prepared pages, on one thread, by the copy that we use.
Tally by_mapping(const Job& job) {
  mooncake::memory::Pool::Options options;
  options.size = kRegion;
  const auto theirs = mooncake::memory::Pool::create(options);
  const auto ours = mooncake::memory::Pool::create(options);
  if (!theirs || !ours) die("pool");
  (*theirs)->prepare(kRegion);
  (*ours)->prepare(kRegion);
  std::byte* const a = (*ours)->data();
  std::byte* const b = (*theirs)->data();
  std::memset(a, 1, kRegion);
  std::memset(b, 2, kRegion);
  return repeat(job, [&](std::size_t offset) {
    for (std::size_t i = 0; i < job.batch; ++i) {
      const std::size_t at = offset + i * job.length;
      mooncake::memory::copy_bytes((job.write ? b : a) + at, (job.write ? a : b) + at, job.length);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s tcp|vm|mapped read|write LENGTH BATCH SECONDS\n", argv[0]);
    return 2;
  }
  Job job;
  job.way = argv[1];
  job.write = std::strcmp(argv[2], "write") == 0;
  job.length = std::strtoull(argv[3], nullptr, 10);
  job.batch = std::strtoull(argv[4], nullptr, 10);
  job.seconds = std::strtod(argv[5], nullptr);
  if (job.length == 0 || job.batch == 0 || job.length * job.batch > kRegion) return 2;
  Tally tally = job.way == "tcp"  ? over_tcp(job)
                : job.way == "vm" ? by_process_vm(job)
                                  : by_mapping(job);
  print(job, std::move(tally));
}
