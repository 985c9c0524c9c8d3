// Replays traces of requests through the Master's core, under each eviction policy and at four
// capacities, and prints which share of the blocks hits.
//   eviction_replay [--json] [--lease_ms=N] [TRACE ...]
// Without a trace: our own sample (workload/sample.h). A request asks for all its blocks, reads the
// longest prefix that is there, and puts the rest, one request at a time, at the trace's times.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core_pool.h"
#include "workload/sample.h"
#include "workload/trace.h"
#include "workload/trace_stats.h"

namespace {

using mooncake::bench::CorePool;
using mooncake::bench::die;
using mooncake::workload::Request;
namespace master = mooncake::store::master;
namespace workload = mooncake::workload;
using master::CommandKind;
using master::EvictionKind;

constexpr double kShares[] = {0.05, 0.10, 0.25, 0.50};  // of the bytes of all blocks
constexpr std::size_t kKeyLength = 32;
constexpr std::size_t kSampleRequests = 12'000;

struct Options {
  bool json = false;
  std::chrono::milliseconds lease{10'000};
  std::vector<std::string> traces;
};

class Replay {
 public:
  Replay(EvictionKind kind, std::uint64_t blocks, std::chrono::milliseconds lease)
      : pool_(core_options(kind, lease), blocks, kKeyLength) {}

  // The leading blocks that were there.
  std::uint64_t serve(const Request& request) {
    pool_.now = std::max(pool_.now, kStart + std::chrono::milliseconds(request.timestamp_ms));
    const std::span<const std::uint64_t> ids = request.hash_ids;
    const std::uint64_t prefix = ask_all(ids);
    read(ids.first(prefix));
    // What is there behind the first that is missing has been computed again, and is put in vain.
    std::vector<std::uint64_t> missing;
    for (std::size_t i = prefix; i < ids.size(); ++i) {
      if (!there_[i]) missing.push_back(ids[i]);
    }
    for (std::size_t at = 0; at < missing.size(); at += CorePool::kBatch) {
      pool_.now += kStep;
      pool_.put(std::span(missing).subspan(at, std::min(CorePool::kBatch, missing.size() - at)));
    }
    return prefix;
  }
  std::uint64_t evicted() const { return pool_.core.totals().evicted_objects; }

 private:
  static constexpr mooncake::base::TimePoint kStart{std::chrono::seconds(1)};
  // Between two commands, so that they are not one to the policy.
  static constexpr std::chrono::microseconds kStep{10};

  static master::CoreOptions core_options(EvictionKind kind, std::chrono::milliseconds lease) {
    master::CoreOptions options;
    options.epoch = mooncake::base::Epoch{1};
    options.epoch_limit = mooncake::base::Epoch{1000};
    options.eviction_policy = kind;
    options.eviction_high_watermark = 1;
    options.lease_ttl = lease;
    return options;
  }

  std::uint64_t ask_all(std::span<const std::uint64_t> ids) {
    there_.clear();
    for (std::size_t at = 0; at < ids.size(); at += CorePool::kBatch) {
      const auto part = ids.subspan(at, std::min(CorePool::kBatch, ids.size() - at));
      pool_.now += kStep;
      pool_.ask(CommandKind::kExist, part);
      for (const master::Effect& effect : pool_.answers())
        there_.push_back(effect.code == mooncake::Code::kOk);
    }
    return static_cast<std::uint64_t>(std::find(there_.begin(), there_.end(), false) -
                                      there_.begin());
  }
  void read(std::span<const std::uint64_t> ids) {
    for (std::size_t at = 0; at < ids.size(); at += CorePool::kBatch) {
      pool_.now += kStep;
      pool_.ask(CommandKind::kLocate, ids.subspan(at, std::min(CorePool::kBatch, ids.size() - at)));
    }
  }

  CorePool pool_;
  std::vector<bool> there_;
};

struct Row {
  EvictionKind kind{};
  std::vector<double> hit_ratios;  // one for each of kShares
};

std::vector<Row> replay_all(std::span<const Request> requests, const workload::TraceStats& stats,
                            const Options& options) {
  std::vector<Row> rows;
  for (const EvictionKind kind : master::kEvictionKinds) {
    Row& row = rows.emplace_back();
    row.kind = kind;
    for (const double share : kShares) {
      const auto blocks =
          static_cast<std::uint64_t>(share * static_cast<double>(stats.unique_blocks));
      Replay replay(kind, std::max<std::uint64_t>(blocks, 1), options.lease);
      std::uint64_t hits = 0;
      for (const Request& request : requests)
        hits += replay.serve(request);
      row.hit_ratios.push_back(static_cast<double>(hits) / static_cast<double>(stats.blocks));
    }
  }
  return rows;
}

void print_table(const std::string& name, const workload::TraceStats& stats,
                 std::span<const Row> rows) {
  fmt::print("{}: {} requests, {} blocks, {} of them unique, unlimited {:.2f} %\n", name,
             stats.requests, stats.blocks, stats.unique_blocks, stats.hit_ratio() * 100);
  fmt::print("  {:8}", "policy");
  for (const double share : kShares)
    fmt::print("{:>8.0f} %", share * 100);
  for (const Row& row : rows) {
    fmt::print("\n  {:8}", master::name_of(row.kind));
    for (const double ratio : row.hit_ratios)
      fmt::print("{:>8.2f} %", ratio * 100);
  }
  fmt::print("\n");
}

nlohmann::json to_json(const std::string& name, const workload::TraceStats& stats,
                       std::span<const Row> rows) {
  nlohmann::json hits;
  for (const Row& row : rows)
    hits[std::string(master::name_of(row.kind))] = row.hit_ratios;
  return {{"trace", name},
          {"requests", stats.requests},
          {"blocks", stats.blocks},
          {"unique_blocks", stats.unique_blocks},
          {"unlimited_hit_ratio", stats.hit_ratio()},
          {"capacity_shares", kShares},
          {"hit_ratios", hits}};
}

[[noreturn]] void usage(std::string_view wrong) {
  fmt::print(stderr, "{}\nusage: eviction_replay [--json] [--lease_ms=N] [TRACE ...]\n", wrong);
  std::exit(2);
}

// Nothing when the words are for the benches on Google Benchmark, which `make bench` gives to all.
std::optional<Options> parse(std::span<char* const> words) {
  constexpr std::string_view kLease = "--lease_ms=";
  Options options;
  for (const std::string_view word : words) {
    if (word.starts_with("--benchmark_")) return std::nullopt;
    if (word == "--json") {
      options.json = true;
    } else if (word.starts_with(kLease)) {
      const std::string_view text = word.substr(kLease.size());
      std::uint32_t ms = 0;
      const auto [end, error] = std::from_chars(text.begin(), text.end(), ms);
      if (error != std::errc{} || end != text.end() || ms == 0) usage("--lease_ms: not a number");
      options.lease = std::chrono::milliseconds(ms);
    } else if (word.starts_with("--")) {
      usage(fmt::format("{}: no such option", word));
    } else {
      options.traces.emplace_back(word);
    }
  }
  return options;
}

void run(const std::string& name, std::span<const Request> requests, const Options& options) {
  const workload::TraceStats stats = workload::trace_stats(requests);
  const std::vector<Row> rows = replay_all(requests, stats, options);
  if (options.json) {
    fmt::print("{}\n", to_json(name, stats, rows).dump());
  } else {
    print_table(name, stats, rows);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options =
      parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  if (!options) return 0;
  if (options->traces.empty()) {
    workload::SampleOptions sample;
    sample.requests = kSampleRequests;
    run("sample", workload::generate_sample(sample), *options);
  }
  for (const std::string& path : options->traces) {
    const auto requests = workload::read_trace(path);
    if (!requests) die(std::string(requests.error().message()));
    run(path, *requests, *options);
  }
  return 0;
}
