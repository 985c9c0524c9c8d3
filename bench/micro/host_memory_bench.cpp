// Memory within a host: what it costs to make it ready, whether the first pass of a fresh process
// through it is as fast as its second one, and what a helping thread brings. The other process is
// this program again, forked and executed anew.
//   host_memory_bench --serve FD          owns memory until FD is closed
//   host_memory_bench --pass FD NAME ADDRESS read|write   measures two passes, once
#include <benchmark/benchmark.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "measure.h"
#include "memory/copy.h"
#include "memory/pool.h"
#include "mooncake/store.h"
#include "mooncake/transfer.h"

namespace {

using mooncake::Opcode;
using mooncake::SegmentHandle;
using mooncake::TransferEngine;
using mooncake::TransferRequest;
using mooncake::bench::Clock;
using mooncake::bench::die;
using mooncake::bench::Latencies;

constexpr std::size_t kPool = 512u << 20;
constexpr std::size_t kPiece = 16u << 20;  // of a pass
constexpr std::size_t kRegion = 64u << 20;
constexpr double kGiB = 1u << 30;
constexpr std::chrono::seconds kTimeout(60);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <typename T>
T expect(mooncake::Result<T> result) {
  if (!result) die(result.error().message());
  return *std::move(result);
}

std::unique_ptr<TransferEngine> start_engine() {
  mooncake::TransferOptions options;
  options.path = "shm";
  return expect(TransferEngine::create(options));
}

// This program in another process, with one end of a socket.
struct Child {
  pid_t pid = 0;
  int fd = -1;

  explicit Child(std::vector<std::string> arguments) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) die("socketpair");
    arguments.insert(arguments.begin() + 1, std::to_string(ends[1]));
    std::string name = "host_memory_bench";
    std::vector<char*> argv{name.data()};
    for (std::string& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      ::execv("/proc/self/exe", argv.data());
      std::_Exit(127);
    }
    ::close(ends[1]);
    fd = ends[0];
  }
  ~Child() {
    ::close(fd);
    ::waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  template <typename T>
  T read() const {
    T value;
    if (::recv(fd, &value, sizeof value, MSG_WAITALL) != static_cast<ssize_t>(sizeof value)) {
      die("the other process has ended");
    }
    return value;
  }
};

void wait_until_prepared(TransferEngine& engine, std::uint64_t bytes) {
  while (engine.preparer().totals().bytes < bytes)
    std::this_thread::yield();
}

TransferRequest request(Opcode opcode, void* here, SegmentHandle target, std::uint64_t there,
                        std::uint64_t length) {
  TransferRequest made;
  made.opcode = opcode;
  made.source = here;
  made.target = target;
  made.target_offset = there;
  made.length = length;
  return made;
}

// Memory that is made ready.

void prepare(benchmark::State& state) {
  bool huge = true;
  double seconds = 0;
  for (auto _ : state) {
    mooncake::memory::Pool::Options options;
    options.size = kPool;
    const auto pool = expect(mooncake::memory::Pool::create(options));
    const auto begin = Clock::now();
    if (pool->prepare(kPool) != kPool) die("no memory");
    const double taken = seconds_since(begin);
    seconds += taken;
    state.SetIterationTime(taken);
    huge &= pool->backing() != mooncake::memory::PageBacking::kSmall;
  }
  state.counters["s_per_GiB"] =
      seconds / static_cast<double>(state.iterations()) * kGiB / static_cast<double>(kPool);
  state.counters["huge"] = huge ? 1 : 0;
}

void initialize(benchmark::State& state) {
  for (auto _ : state) {
    const auto begin = Clock::now();
    const auto engine = start_engine();
    state.SetIterationTime(seconds_since(begin));
  }
}

// With the first 64 MiB of a segment of 512 MiB ready.
void setup(benchmark::State& state) {
  mooncake::StoreOptions options;
  options.master_server_address = "embedded";
  options.global_segment_size = kPool;
  for (auto _ : state) {
    const auto begin = Clock::now();
    const auto store = expect(mooncake::Store::create(options));
    state.SetIterationTime(seconds_since(begin));
  }
}

// Two passes of a fresh process through a fresh mapping.

struct Passes {
  double first = 0, second = 0;  // bytes a second
};

int run_passes(int fd, const std::string& name, std::uint64_t address, Opcode opcode) {
  const auto engine = start_engine();
  std::vector<char> local(kPiece, 'l');
  if (!engine->register_memory(local.data(), local.size())) die("register");
  const SegmentHandle target = expect(engine->open_segment(name));
  const auto move = [&](std::uint64_t offset, std::uint64_t length) {
    const TransferRequest one = request(opcode, local.data(), target, address + offset, length);
    if (!engine->transfer({&one, 1}, kTimeout).ok()) die("a transfer failed");
  };
  const auto pass = [&] {
    const auto begin = Clock::now();
    for (std::size_t offset = 0; offset < kPool; offset += kPiece)
      move(offset, kPiece);
    return static_cast<double>(kPool) / seconds_since(begin);
  };
  move(0, 4096);  // they get to know each other
  Passes passes;
  passes.first = pass();
  passes.second = pass();
  return ::send(fd, &passes, sizeof passes, MSG_NOSIGNAL) == sizeof passes ? 0 : 1;
}

void first_pass(benchmark::State& state, const char* direction) {
  const auto engine = start_engine();
  void* const memory = expect(engine->allocate_memory(kPool));
  wait_until_prepared(*engine, kPool);
  std::vector<double> ratios, firsts;
  for (auto _ : state) {
    const Child child({"--pass", engine->local_name(),
                       std::to_string(reinterpret_cast<std::uint64_t>(memory)), direction});
    const auto passes = child.read<Passes>();
    state.SetIterationTime(static_cast<double>(kPool) / passes.first);
    ratios.push_back(passes.first / passes.second);
    firsts.push_back(passes.first);
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(firsts.begin(), firsts.end());
  state.counters["first_GB_per_s"] = firsts[firsts.size() / 2] / 1e9;
  state.counters["first_to_second"] = ratios[ratios.size() / 2];
  state.counters["worst_ratio"] = ratios.front();
}

// Copies on one thread and on two.

struct Place {
  char name[64] = {};
  std::uint64_t mapped = 0, own = 0;
};

int serve(int fd) {
  const auto engine = start_engine();
  std::vector<char> own(kRegion, 'o');
  Place place;
  void* const mapped = expect(engine->allocate_memory(kRegion));
  std::memset(mapped, 'm', kRegion);
  if (!engine->register_memory(own.data(), kRegion)) die("register");
  engine->local_name().copy(place.name, sizeof place.name - 1);
  place.mapped = reinterpret_cast<std::uint64_t>(mapped);
  place.own = reinterpret_cast<std::uint64_t>(own.data());
  char end = 0;
  if (::send(fd, &place, sizeof place, MSG_NOSIGNAL) != sizeof place) return 1;
  return ::recv(fd, &end, 1, 0) == 0 ? 0 : 1;
}

// This process's engines, one without helpers, one with one.
struct Copiers {
  struct Side {
    std::unique_ptr<TransferEngine> engine;
    void* memory = nullptr;
    SegmentHandle target{};
  };
  Child peer{{"--serve"}};
  Place place = peer.read<Place>();
  Side sides[2];

  Copiers() {
    for (int helpers = 0; helpers < 2; ++helpers) {
      ::setenv("MOONCAKE_COPY_HELPERS", std::to_string(helpers).c_str(), 1);
      Side& side = sides[helpers];
      side.engine = start_engine();
      side.memory = expect(side.engine->allocate_memory(kRegion));
      std::memset(side.memory, 's', kRegion);
      side.target = expect(side.engine->open_segment(place.name));
    }
  }
};
Copiers& copiers() {
  static Copiers all;
  return all;
}

void copy(benchmark::State& state, bool mapped, Opcode opcode) {
  const auto size = static_cast<std::size_t>(state.range(0));
  Copiers::Side& side = copiers().sides[state.range(1) - 1];
  const std::uint64_t there = mapped ? copiers().place.mapped : copiers().place.own;
  std::size_t at = 0;
  for (auto _ : state) {
    const TransferRequest one =
        request(opcode, static_cast<char*>(side.memory) + at, side.target, there + at, size);
    if (!side.engine->transfer({&one, 1}, kTimeout).ok()) {
      state.SkipWithError("a transfer failed");
      break;
    }
    at = (at + size) % kRegion;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * size));
}

// One call at a time, in memory that is warm.
void one_at_a_time(benchmark::State& state, bool mapped, Opcode opcode) {
  constexpr std::size_t kSize = 4096;
  Copiers::Side& side = copiers().sides[0];
  const std::uint64_t there = mapped ? copiers().place.mapped : copiers().place.own;
  const TransferRequest one = request(opcode, side.memory, side.target, there, kSize);
  Latencies latencies;
  for (auto _ : state) {
    bool moved = false;
    latencies.measure([&] { moved = side.engine->transfer({&one, 1}, kTimeout).ok(); });
    if (!moved) {
      state.SkipWithError("a transfer failed");
      break;
    }
  }
  latencies.report(state);
}

// The limit of mapped copies: the same bytes from memory of this process to memory of this process.
void bare(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  auto* const from = static_cast<std::byte*>(copiers().sides[0].memory);
  auto* const to = static_cast<std::byte*>(copiers().sides[1].memory);
  std::size_t at = 0;
  for (auto _ : state) {
    mooncake::memory::copy_bytes(to + at, from + at, size);
    mooncake::memory::store_fence();
    at = (at + size) % kRegion;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * size));
}

void copies(benchmark::internal::Benchmark* row) {
  for (const std::int64_t size : {1 << 20, 4 << 20, 16 << 20, 64 << 20})
    row->Args({size, 1})->Args({size, 2});
  row->ArgNames({"bytes", "threads"})->UseRealTime();
}

BENCHMARK(prepare)->Name("host/prepare")->UseManualTime()->Iterations(7);
BENCHMARK(initialize)->Name("host/initialize")->UseManualTime()->Iterations(25);
BENCHMARK(setup)->Name("host/setup")->UseManualTime()->Iterations(7);
BENCHMARK_CAPTURE(first_pass, write, "write")
    ->Name("host/first_pass/write")
    ->UseManualTime()
    ->Iterations(7);
BENCHMARK_CAPTURE(first_pass, read, "read")
    ->Name("host/first_pass/read")
    ->UseManualTime()
    ->Iterations(7);
BENCHMARK(bare)
    ->Name("host/bare/copy")
    ->ArgName("bytes")
    ->Arg(1 << 20)
    ->Arg(4 << 20)
    ->Arg(16 << 20)
    ->Arg(64 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(copy, mapped_write, true, Opcode::kWrite)
    ->Name("host/copy/mapped/write")
    ->Apply(copies);
BENCHMARK_CAPTURE(copy, mapped_read, true, Opcode::kRead)
    ->Name("host/copy/mapped/read")
    ->Apply(copies);
BENCHMARK_CAPTURE(copy, vm_write, false, Opcode::kWrite)
    ->Name("host/copy/process_vm/write")
    ->Apply(copies);
BENCHMARK_CAPTURE(copy, vm_read, false, Opcode::kRead)
    ->Name("host/copy/process_vm/read")
    ->Apply(copies);
BENCHMARK_CAPTURE(one_at_a_time, mapped_write, true, Opcode::kWrite)->Name("host/one/mapped/write");
BENCHMARK_CAPTURE(one_at_a_time, mapped_read, true, Opcode::kRead)->Name("host/one/mapped/read");
BENCHMARK_CAPTURE(one_at_a_time, vm_write, false, Opcode::kWrite)
    ->Name("host/one/process_vm/write");
BENCHMARK_CAPTURE(one_at_a_time, vm_read, false, Opcode::kRead)->Name("host/one/process_vm/read");

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  if (mode == "--serve") return serve(std::atoi(argv[2]));
  if (mode == "--pass" && argc == 6) {
    const Opcode opcode = std::string(argv[5]) == "write" ? Opcode::kWrite : Opcode::kRead;
    return run_passes(std::atoi(argv[2]), argv[3], std::strtoull(argv[4], nullptr, 10), opcode);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
