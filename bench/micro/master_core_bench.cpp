// The Master's core alone, on one thread, in batches of 512: what a key costs (CPU time), asked
// for, located, or put into a full pool, under each eviction policy; and exist batches while a
// stream of puts evicts from among ten million small objects (case C21).
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <memory>

#include "base/random.h"
#include "core_pool.h"

namespace {

using namespace std::chrono_literals;
using mooncake::bench::CorePool;
using mooncake::bench::Cost;
using mooncake::bench::Latencies;
namespace base = mooncake::base;
namespace master = mooncake::store::master;
using master::CommandKind;
using master::EvictionKind;

constexpr std::uint64_t kObjects = 1'000'000;
constexpr std::uint64_t kManyObjects = 10'000'000;
constexpr std::size_t kKeyLength = 60;
constexpr std::size_t kShortKeyLength = 16;

// Full, and kept for the next rows that ask for the same.
struct FullPool {
  FullPool(EvictionKind kind_, std::uint64_t objects_, std::size_t key_length)
      : kind(kind_), objects(objects_), next(objects_) {
    master::CoreOptions options;
    options.epoch = base::Epoch{1};
    options.epoch_limit = base::Epoch{1000};
    options.hash_seed = 42;
    options.eviction_policy = kind;
    options.eviction_high_watermark = 1;
    pool = std::make_unique<CorePool>(options, objects, key_length);
    for (std::uint64_t first = 0; first < objects; first += CorePool::kBatch) {
      pool->put_range(first, std::min(CorePool::kBatch, objects - first));
      pool->now += 1us;
    }
  }

  const EvictionKind kind;
  const std::uint64_t objects;
  std::uint64_t next;  // number of the next object to be put
  std::unique_ptr<CorePool> pool;
  base::Random random{1};
};

FullPool& full_pool(EvictionKind kind, std::uint64_t objects, std::size_t key_length) {
  static std::unique_ptr<FullPool> kept;
  if (kept == nullptr || kept->kind != kind || kept->objects != objects) {
    kept.reset();  // its memory first
    kept = std::make_unique<FullPool>(kind, objects, key_length);
  }
  return *kept;
}

// Of the youngest `objects`: nearly all are there.
std::array<std::uint64_t, CorePool::kBatch> draw(FullPool& full) {
  std::array<std::uint64_t, CorePool::kBatch> numbers;
  for (std::uint64_t& number : numbers)
    number = full.next - 1 - full.random.below(full.objects);
  return numbers;
}

void count_keys(benchmark::State& state) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * CorePool::kBatch));
}

// Each at a time of its own, so that each lease is a new one.
void ask(benchmark::State& state, CommandKind command, EvictionKind kind) {
  FullPool& full = full_pool(kind, kObjects, kKeyLength);
  std::uint64_t found = 0;
  for (auto _ : state) {
    full.pool->now += 100us;
    const auto numbers = draw(full);
    state.SetIterationTime(full.pool->ask(command, numbers).cpu);
    for (const master::Effect& effect : full.pool->answers())
      found += effect.code == mooncake::Code::kOk;
  }
  count_keys(state);
  state.counters["bytes_per_object"] = full.pool->bytes_per_object();
  state.counters["found"] =
      static_cast<double>(found) / static_cast<double>(state.iterations() * CorePool::kBatch);
}

// Each evicts one, of which none is leased any more.
void put(benchmark::State& state, EvictionKind kind) {
  FullPool& full = full_pool(kind, kObjects, kKeyLength);
  full.pool->now += 1h;
  const std::uint64_t evicted = full.pool->core.totals().evicted_objects;
  for (auto _ : state) {
    full.pool->now += 100us;
    state.SetIterationTime(full.pool->put_range(full.next, CorePool::kBatch).cpu);
    full.next += CorePool::kBatch;
  }
  count_keys(state);
  state.counters["evicted_per_put"] =
      static_cast<double>(full.pool->core.totals().evicted_objects - evicted) /
      static_cast<double>(state.iterations() * CorePool::kBatch);
  state.counters["bytes_per_object"] = full.pool->bytes_per_object();
}

// In turns on one thread, as the Master's executor runs them; leases of ten seconds of the time
// that this takes.
void exist_while_evicting(benchmark::State& state, EvictionKind kind) {
  FullPool& full = full_pool(kind, kManyObjects, kShortKeyLength);
  full.pool->now += 1h;
  Latencies waited;
  Latencies worked;
  Cost puts;
  for (auto _ : state) {
    Cost both = full.pool->put_range(full.next, CorePool::kBatch);
    puts += both;
    full.next += CorePool::kBatch;
    const auto numbers = draw(full);
    const Cost asking = full.pool->ask(CommandKind::kExist, numbers);
    waited.add(asking.wall);
    worked.add(asking.cpu);
    both += asking;
    full.pool->now +=
        std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(both.wall));
    state.SetIterationTime(asking.cpu);
  }
  count_keys(state);
  waited.report(state);
  worked.report(state, "cpu_");
  state.counters["puts_per_second"] =
      static_cast<double>(state.iterations() * CorePool::kBatch) / puts.cpu;
  state.counters["bytes_per_object"] = full.pool->bytes_per_object();
}

void add_rows(EvictionKind kind) {
  const std::string name(master::name_of(kind));
  const auto row = [&](const std::string& what, auto... work) {
    return benchmark::RegisterBenchmark(("core/" + what + "/" + name).c_str(), work...)
        ->UseManualTime();
  };
  row("exist", ask, CommandKind::kExist, kind);
  row("locate", ask, CommandKind::kLocate, kind);
  row("put", put, kind);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (const EvictionKind kind : master::kEvictionKinds)
    add_rows(kind);
  benchmark::RegisterBenchmark("core/exist_while_evicting/10M", exist_while_evicting,
                               master::CoreOptions().eviction_policy)
      ->UseManualTime()
      ->Iterations(4000);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
