#include "demo_report.h"

#include <fmt/format.h>
#include <mooncake/config.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "workload/trace_stats.h"

namespace mooncake::demo {

namespace {

using Json = nlohmann::ordered_json;

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double to_double(std::uint64_t value) { return static_cast<double>(value); }
double gigabytes(std::uint64_t bytes) { return to_double(bytes) / 1e9; }
// For people: at most one decimal, where format_size() is exact.
std::string about(std::uint64_t bytes) {
  constexpr double kMebi = 1 << 20;
  return bytes < (std::uint64_t{1} << 30)
             ? fmt::format("{:.0f} MiB", to_double(bytes) / kMebi)
             : fmt::format("{:.2f} GiB", to_double(bytes) / kMebi / 1024);
}

void add_row(std::string& out, std::string_view label, const std::string& value) {
  out += fmt::format("  {:<16}{}\n", label, value);
}

std::string not_stored_text(const Report& report) {
  std::string text = grouped(report.not_stored);
  for (const auto& [code, blocks] : report.not_stored_by_code) {
    text += fmt::format("{} {} for {} ({})",
                        &code == &report.not_stored_by_code.begin()->first ? ":" : ",",
                        grouped(blocks), store_code_text(code), code);
  }
  return text;
}

void add_flows(std::string& out, const Report& report) {
  out += fmt::format("\n  {:<14}{:>10}{:>10}{:>10}{:>12}{:>12}\n", "", "calls", "GB", "GB/s",
                     "p50 ms", "p99 ms");
  const std::pair<const char*, const Flow&> flows[] = {
      {"store get", report.store_get},
      {"store put", report.store_put},
      {"hand-off", report.handoff},
  };
  for (const auto& [name, flow] : flows) {
    out += fmt::format("  {:<14}{:>10}{:>10.3f}{:>10.3f}{:>12.2f}{:>12.2f}\n", name,
                       grouped(flow.calls()), gigabytes(flow.bytes()), flow.gigabytes_per_second(),
                       flow.milliseconds_at(50), flow.milliseconds_at(99));
  }
  for (const auto& [name, path] : report.paths) {
    out += fmt::format("  by {:<11}{:>10}{:>10.3f}{:>10.3f}  over the run{}{}\n", name, "",
                       gigabytes(path.bytes), ratio(gigabytes(path.bytes), report.seconds),
                       path.reason.empty() ? "" : ": ", path.reason);
  }
}

Json flow_json(const Flow& flow) {
  return {{"calls", flow.calls()},
          {"bytes", flow.bytes()},
          {"seconds", flow.seconds()},
          {"gb_per_second", flow.gigabytes_per_second()},
          {"p50_ms", flow.milliseconds_at(50)},
          {"p99_ms", flow.milliseconds_at(99)}};
}

Json paths_json(const Report& report) {
  Json paths = Json::object();
  for (const auto& [name, path] : report.paths) {
    paths[name] = {{"bytes", path.bytes},
                   {"gb_per_second", ratio(gigabytes(path.bytes), report.seconds)},
                   {"reason", path.reason}};
  }
  return paths;
}

Json comparison_json(const Comparison& comparison) {
  Json paths = Json::object();
  for (const auto& [name, report] : comparison) {
    paths[name] = {{"requests", report.requests},
                   {"seconds", report.seconds},
                   {"blocks", report.blocks},
                   {"hit", report.hits},
                   {"store_get", flow_json(report.store_get)},
                   {"store_put", flow_json(report.store_put)},
                   {"handoff", flow_json(report.handoff)},
                   {"paths", paths_json(report)},
                   {"wrong_blocks", report.wrong_blocks}};
  }
  return paths;
}

Json verified_json(const Report& report) {
  Json wrong = Json::array();
  for (const WrongBlock& one : report.wrong) {
    wrong.push_back({{"request", one.request},
                     {"block", one.block},
                     {"position", one.position},
                     {"offset", one.offset},
                     {"node", one.node},
                     {"stage", one.stage}});
  }
  return {{"bytes", report.verified_by_decode + report.verified_by_prefill},
          {"decode_bytes", report.verified_by_decode},
          {"prefill_bytes", report.verified_by_prefill},
          {"wrong_blocks", report.wrong_blocks},
          {"wrong", wrong}};
}

}  // namespace

void Flow::add(const Call& call) {
  if (call.bytes == 0) return;
  bytes_ += call.bytes;
  microseconds_.push_back(call.microseconds);
}

double Flow::seconds() const {
  double sum = 0;
  for (std::uint64_t one : microseconds_)
    sum += to_double(one) / 1e6;
  return sum;
}

double Flow::gigabytes_per_second() const { return ratio(gigabytes(bytes_), seconds()); }

double Flow::milliseconds_at(double percent) const {
  std::vector<std::uint64_t> sorted = microseconds_;
  std::sort(sorted.begin(), sorted.end());
  return to_double(workload::percentile(sorted, percent)) / 1000;
}

double Report::hit_ratio() const { return ratio(to_double(hits), to_double(blocks)); }

std::string grouped(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t i = text.size(); i > 3;)
    text.insert(i -= 3, " ");
  return text;
}

std::string describe(const WrongBlock& wrong) {
  return fmt::format(
      "request {}, block {:#x} (position {}): {} found the first wrong byte at offset {} after the "
      "{}",
      wrong.request, wrong.block, wrong.position, wrong.node, wrong.offset, wrong.stage);
}

std::string render_table(const Report& report) {
  std::string out = fmt::format("mooncake demo: {}, blocks of {}\n", report.trace,
                                format_size(report.block_bytes));
  add_row(out, "requests",
          fmt::format("{} in {:.1f} s, {:.1f} a second", grouped(report.requests), report.seconds,
                      ratio(to_double(report.requests), report.seconds)));
  add_row(out, "blocks", grouped(report.blocks));
  add_row(out, "  hit", grouped(report.hits));
  add_row(out, "  missed", grouped(report.misses));
  add_row(out, "  not stored", not_stored_text(report));
  add_row(out, "hit ratio",
          fmt::format("{:.3f}, with unlimited capacity {:.3f}", report.hit_ratio(),
                      report.unlimited_hit_ratio));
  add_row(out, "prefill saved",
          fmt::format("{} of {} tokens ({:.1f} %)", grouped(report.tokens_saved),
                      grouped(report.input_tokens),
                      100 * ratio(to_double(report.tokens_saved), to_double(report.input_tokens))));
  add_row(
      out, "evicted",
      fmt::format("{} blocks, {}", grouped(report.evicted_objects), about(report.evicted_bytes)));
  add_row(out, "memory",
          fmt::format("{} at the peak; 5 segments of {}, buffers of {}", about(report.memory_peak),
                      format_size(report.segment_bytes), about(report.buffers_total)));
  add_flows(out, report);
  out += '\n';
  add_row(out, "verified",
          fmt::format("{} bytes by decode nodes, {} by prefill nodes: {}",
                      grouped(report.verified_by_decode), grouped(report.verified_by_prefill),
                      report.wrong_blocks == 0
                          ? std::string("every byte is right")
                          : fmt::format("{} BLOCKS ARE WRONG", grouped(report.wrong_blocks))));
  return out;
}

std::string render_comparison(const Comparison& comparison) {
  if (comparison.empty()) return {};
  std::string out = fmt::format("\n  The first {} requests again, by one path alone:\n",
                                grouped(comparison.begin()->second.requests));
  out += fmt::format("  {:<14}{:>10}{:>12}{:>12}{:>12}{:>12}\n", "", "seconds", "get GB/s",
                     "put GB/s", "hand GB/s", "hand p50 ms");
  for (const auto& [name, report] : comparison) {
    out += fmt::format("  {:<14}{:>10.1f}{:>12.3f}{:>12.3f}{:>12.3f}{:>12.2f}\n", name,
                       report.seconds, report.store_get.gigabytes_per_second(),
                       report.store_put.gigabytes_per_second(),
                       report.handoff.gigabytes_per_second(), report.handoff.milliseconds_at(50));
  }
  return out;
}

std::string render_json(const Report& report, const Comparison& comparison) {
  Json not_stored = Json::object();
  for (const auto& [code, blocks] : report.not_stored_by_code) {
    not_stored[std::to_string(code)] = blocks;
  }
  const Json document = {
      {"trace", report.trace},
      {"seed", report.seed},
      {"requests", report.requests},
      {"block_bytes", report.block_bytes},
      {"segment_bytes", report.segment_bytes},
      {"replicas", report.replicas},
      {"seconds", report.seconds},
      {"requests_per_second", ratio(to_double(report.requests), report.seconds)},
      {"blocks",
       {{"total", report.blocks},
        {"hit", report.hits},
        {"missed", report.misses},
        {"not_stored", report.not_stored},
        {"not_stored_by_code", not_stored}}},
      {"hit_ratio", report.hit_ratio()},
      {"unlimited_hit_ratio", report.unlimited_hit_ratio},
      {"tokens", {{"input", report.input_tokens}, {"saved", report.tokens_saved}}},
      {"store_get", flow_json(report.store_get)},
      {"store_put", flow_json(report.store_put)},
      {"handoff", flow_json(report.handoff)},
      {"paths", paths_json(report)},
      {"comparison", comparison_json(comparison)},
      {"evicted", {{"objects", report.evicted_objects}, {"bytes", report.evicted_bytes}}},
      {"verified", verified_json(report)},
      {"memory",
       {{"segments_bytes", report.segments_total},
        {"buffers_bytes", report.buffers_total},
        {"peak_bytes", report.memory_peak}}},
      {"ok", report.wrong_blocks == 0},
  };
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mooncake::demo
