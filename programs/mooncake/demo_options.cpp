#include "demo_options.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/text.h"
#include "workload/sample.h"

namespace mooncake::demo {

namespace {

constexpr std::string_view kSample = "sample";
constexpr double kKibi = 1024;
constexpr double kMebi = 1024 * kKibi;

constexpr Setting kSettings[] = {
    {.name = "trace",
     .type = SettingType::kText,
     .fallback = "sample",
     .help = "trace file in the published JSONL format, or `sample`: one of our own, generated"},
    {.name = "requests",
     .type = SettingType::kInteger,
     .fallback = "0",
     .help = "requests to replay; 0 = all of a file, 400 of the sample",
     .minimum = 0,
     .maximum = static_cast<double>(workload::kMaxSampleRequests)},
    {.name = "block-bytes",
     .type = SettingType::kBytes,
     .fallback = "256KiB",
     .help = "bytes of a KV block (512 tokens)",
     .minimum = 64,
     .maximum = 1024 * kMebi},
    {.name = "segment-size",
     .type = SettingType::kBytes,
     .fallback = "512MiB",
     .help = "bytes that each of the five nodes gives to the store",
     .minimum = kMebi,
     .maximum = 1024 * 1024 * kMebi},
    {.name = "replicas",
     .type = SettingType::kInteger,
     .fallback = "1",
     .help = "copies of each block, in distinct nodes",
     .minimum = 1,
     .maximum = 4},
    {.name = "seed",
     .type = SettingType::kInteger,
     .fallback = "1",
     .help = "seed of the sample and of the blocks' bytes",
     .minimum = 0},
    {.name = "path",
     .type = SettingType::kChoice,
     .fallback = "auto",
     .help = "how blocks are handed off: the best way, sockets only, or one copy within this host",
     .allowed = "auto|tcp|shm"},
    {.name = "compare",
     .type = SettingType::kChoice,
     .fallback = "auto",
     .help = "replay the first 100 requests again, through shared memory alone and by sockets "
             "alone; auto = for the sample, when no path was asked for",
     .allowed = "auto|on|off"},
    {.name = "json",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "one JSON document on standard output instead of the table"},
    {.name = "inject-corruption",
     .type = SettingType::kBool,
     .fallback = "false",
     .help = "flip one byte between a prefill node and a decode node, which must find it"},
};

}  // namespace

std::span<const Setting> demo_settings() { return kSettings; }

Result<DemoOptions> parse_options(const std::map<std::string, std::string>& given) {
  SettingInputs inputs;
  inputs.arguments = given;
  MC_TRY(const Settings settings, Settings::resolve(kSettings, inputs));
  DemoOptions options;
  options.trace = settings.text("trace");
  options.requests = static_cast<std::uint64_t>(settings.integer("requests"));
  options.block_bytes = settings.bytes("block-bytes");
  options.segment_bytes = settings.bytes("segment-size");
  options.replicas = static_cast<std::uint32_t>(settings.integer("replicas"));
  options.seed = static_cast<std::uint64_t>(settings.integer("seed"));
  options.path = settings.text("path");
  const std::string_view compare = settings.text("compare");
  const bool by_itself = compare == "auto" && options.trace == kSample && options.path == "auto";
  if (compare == "on" || by_itself) options.compare = kComparedRequests;
  options.json = settings.boolean("json");
  options.inject_corruption = settings.boolean("inject-corruption");
  if (options.trace.empty()) {
    return fail(Code::kInvalidArgument, "trace: '' is not `sample` or the path of a file");
  }
  if (options.block_bytes > options.segment_bytes) {
    return fail(Code::kInvalidArgument,
                fmt::format("block-bytes: a block of {} bytes has no room in a segment of {}; give "
                            "a larger --segment-size",
                            options.block_bytes, options.segment_bytes));
  }
  return options;
}

Result<std::vector<workload::Request>> load_requests(const DemoOptions& options) {
  if (options.trace == kSample) {
    workload::SampleOptions sample;
    sample.seed = options.seed;
    if (options.requests != 0) sample.requests = options.requests;
    return workload::generate_sample(sample);
  }
  auto requests =
      workload::read_trace(options.trace, options.requests == 0 ? SIZE_MAX : options.requests);
  if (!requests) return fail(std::move(requests).error().with_context("trace"));
  if (requests->empty()) {
    return fail(Code::kInvalidArgument,
                fmt::format("trace: {} holds no request", base::quote(options.trace)));
  }
  const Result<void> replayable = check_replayable(*requests);
  if (!replayable) {
    return fail(Error(replayable.error()).with_context("trace: " + base::quote(options.trace)));
  }
  return requests;
}

Result<void> check_replayable(std::span<const workload::Request> requests) {
  std::unordered_map<std::uint64_t, std::size_t> positions;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const auto& ids = requests[r].hash_ids;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto [known, is_new] = positions.emplace(ids[i], i);
      if (is_new || known->second == i) continue;
      return fail(Code::kInvalidArgument,
                  fmt::format("request {}: block id {} comes at position {} and at position {}; an "
                              "id stands for a whole prefix, so it has one position",
                              r, ids[i], known->second, i));
    }
  }
  return {};
}

}  // namespace mooncake::demo
