// What the tcp path makes of a socket: one engine in this process, one in a child, on loopback, and
// beside them bare loops of two processes that move the same bytes, as the limit. The bare rows
// wait for each block like a blocking transfer does; bare/stream never waits.
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "measure.h"
#include "mooncake/transfer.h"

namespace {

using mooncake::Opcode;
using mooncake::SegmentHandle;
using mooncake::TransferEngine;
using mooncake::TransferRequest;
using mooncake::bench::die;
using mooncake::bench::Latencies;

constexpr std::size_t kMemory = 64u << 20;
constexpr std::chrono::seconds kTimeout(30);

// All of it, or the process ends: its peer has gone.
void send_all(int fd, const void* data, std::size_t size) {
  for (const char* next = static_cast<const char*>(data); size > 0;) {
    const ssize_t sent = ::send(fd, next, size, MSG_NOSIGNAL);
    if (sent <= 0) std::exit(0);
    next += sent;
    size -= static_cast<std::size_t>(sent);
  }
}
void receive_all(int fd, void* data, std::size_t size) {
  for (char* next = static_cast<char*>(data); size > 0;) {
    const ssize_t got = ::recv(fd, next, size, 0);
    if (got <= 0) std::exit(0);
    next += got;
    size -= static_cast<std::size_t>(got);
  }
}

// Connected ends over loopback, with the kernel's own buffer sizes.
struct Connection {
  int near = -1;
  int far = -1;
};
Connection connect_loopback() {
  Connection ends;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, raw, size) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, raw, &size) != 0) {
    die("listen");
  }
  ends.near = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(ends.near, raw, size) != 0) die("connect");
  ends.far = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  const int yes = 1;
  for (const int fd : {ends.near, ends.far})
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return ends;
}

// The bare peer: does for each command what its owner asks.
struct Command {
  std::uint64_t bytes_here = 0;  // that follow the command
  std::uint64_t bytes_back = 0;  // of the answer
};

[[noreturn]] void run_bare_peer(int fd) {
  std::vector<char> buffer(kMemory);
  for (;;) {
    Command command;
    receive_all(fd, &command, sizeof command);
    receive_all(fd, buffer.data(), command.bytes_here);
    send_all(fd, buffer.data(), command.bytes_back);
  }
}

// Forks; the child runs `body` and ends with this process.
template <typename Body>
void in_child(Body body) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) die("fork");
  if (child > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::exit(0);
  body();
  std::exit(0);
}

struct Place {
  char name[64] = {};
  std::uint64_t address = 0;
};

std::unique_ptr<TransferEngine> start_engine(void** memory) {
  mooncake::TransferOptions options;
  options.path = "tcp";
  auto engine = TransferEngine::create(options);
  if (!engine) die(engine.error().message().c_str());
  auto allocated = (*engine)->allocate_memory(kMemory);
  if (!allocated) die(allocated.error().message().c_str());
  *memory = *allocated;
  std::fill_n(static_cast<char*>(*memory), kMemory, 'm');
  return *std::move(engine);
}

[[noreturn]] void run_engine_peer(int fd) {
  void* memory = nullptr;
  const auto engine = start_engine(&memory);
  Place place;
  engine->local_name().copy(place.name, sizeof place.name - 1);
  place.address = reinterpret_cast<std::uint64_t>(memory);
  send_all(fd, &place, sizeof place);
  char end;
  (void)::recv(fd, &end, sizeof end, 0);
  std::exit(0);
}

// Both peers, forked before this process has a thread.
struct Peers {
  int bare = -1;
  int engine_control = -1;
  Place place;
  void* memory = nullptr;
  std::unique_ptr<TransferEngine> engine;
  SegmentHandle target{};
  std::vector<char> buffer = std::vector<char>(kMemory);

  void start() {
    const Connection bare_ends = connect_loopback();
    in_child([&] { run_bare_peer(bare_ends.far); });
    bare = bare_ends.near;
    const Connection ends = connect_loopback();
    in_child([&] { run_engine_peer(ends.far); });
    engine_control = ends.near;
    receive_all(ends.near, &place, sizeof place);
    engine = start_engine(&memory);
    auto opened = engine->open_segment(place.name);
    if (!opened) die(opened.error().message().c_str());
    target = *opened;
  }
};
Peers peers;

void count_bytes(benchmark::State& state, std::size_t each) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * each));
}

// Bare loops.

void bare(benchmark::State& state, Opcode opcode) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const bool write = opcode == Opcode::kWrite;
  Command command;
  command.bytes_here = write ? size : 0;
  command.bytes_back = write ? 8 : size;
  Latencies latencies;
  for (auto _ : state) {
    latencies.measure([&] {
      send_all(peers.bare, &command, sizeof command);
      if (write) send_all(peers.bare, peers.buffer.data(), size);
      receive_all(peers.bare, peers.buffer.data(), command.bytes_back);
    });
  }
  latencies.report(state);
  count_bytes(state, size);
}

// One packet each way, 4 KiB back.
void bare_ping_pong(benchmark::State& state) { bare(state, Opcode::kRead); }

void bare_stream(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kBlocks = 16;
  Command command;
  command.bytes_here = size;
  Command last = command;
  last.bytes_back = 8;
  for (auto _ : state) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      send_all(peers.bare, i + 1 < kBlocks ? &command : &last, sizeof command);
      send_all(peers.bare, peers.buffer.data(), size);
    }
    receive_all(peers.bare, peers.buffer.data(), last.bytes_back);
  }
  count_bytes(state, size * kBlocks);
}

// Transfers.

void transfer(benchmark::State& state, Opcode opcode) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const auto count = static_cast<std::size_t>(state.range(1));
  std::vector<TransferRequest> requests(count);
  for (std::size_t i = 0; i < count; ++i) {
    requests[i].opcode = opcode;
    requests[i].source = static_cast<char*>(peers.memory) + i * size;
    requests[i].target = peers.target;
    requests[i].target_offset = peers.place.address + i * size;
    requests[i].length = size;
  }
  Latencies latencies;
  for (auto _ : state) {
    bool ok = true;
    latencies.measure([&] { ok = peers.engine->transfer(requests, kTimeout).ok(); });
    if (!ok) {
      state.SkipWithError("a transfer failed");
      break;
    }
  }
  latencies.report(state);
  count_bytes(state, size * count);
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * count));
}

void sizes(benchmark::internal::Benchmark* row, bool with_count) {
  for (const std::int64_t size : {64 << 10, 256 << 10, 1 << 20, 16 << 20}) {
    if (with_count) {
      row->Args({size, 1});
    } else {
      row->Arg(size);
    }
  }
  row->UseRealTime();
}
void bare_sizes(benchmark::internal::Benchmark* row) { sizes(row, false); }
void transfer_sizes(benchmark::internal::Benchmark* row) {
  row->Args({4 << 10, 1})->Args({4 << 10, 128})->Args({256 << 10, 16});
  sizes(row, true);
}

BENCHMARK(bare_ping_pong)->Name("tcp/bare/ping_pong")->Arg(4 << 10)->UseRealTime();
BENCHMARK(bare_stream)->Name("tcp/bare/stream")->Apply(bare_sizes);
BENCHMARK_CAPTURE(bare, read, Opcode::kRead)->Name("tcp/bare/read")->Apply(bare_sizes);
BENCHMARK_CAPTURE(bare, write, Opcode::kWrite)->Name("tcp/bare/write")->Apply(bare_sizes);
BENCHMARK_CAPTURE(transfer, read, Opcode::kRead)->Name("tcp/engine/read")->Apply(transfer_sizes);
BENCHMARK_CAPTURE(transfer, write, Opcode::kWrite)->Name("tcp/engine/write")->Apply(transfer_sizes);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  peers.start();
  benchmark::RunSpecifiedBenchmarks();
  peers.engine.reset();
  return 0;
}
