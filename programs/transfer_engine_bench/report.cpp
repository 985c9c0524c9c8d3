#include "transfer_engine_bench/report.h"

#include <fmt/format.h>

#include <string_view>

namespace mooncake::bench {

namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {
    {"GB", 1e9},     {"GiB", 1073741824.0}, {"Gb", 1e9 / 8}, {"MB", 1e6},     {"MiB", 1048576.0},
    {"Mb", 1e6 / 8}, {"KB", 1e3},           {"KiB", 1024.0}, {"Kb", 1e3 / 8},
};

}  // namespace

Result<std::string> rate_text(std::uint64_t bytes, double seconds, const std::string& unit,
                              int precision) {
  std::string known;
  for (const Unit& each : kUnits) {
    if (each.name == unit) {
      const double rate = seconds > 0 ? static_cast<double>(bytes) / each.bytes / seconds : 0;
      return fmt::format("{:.{}f} {}/s", rate, precision, unit);
    }
    known += (known.empty() ? "" : "|") + std::string(each.name);
  }
  return fail(Code::kInvalidArgument,
              fmt::format("report_unit: '{}' is not one of {}", unit, known));
}

Result<std::string> result_line(const Measured& measured, const std::string& unit, int precision) {
  MC_TRY(const std::string rate, rate_text(measured.bytes, measured.seconds, unit, precision));
  return fmt::format("Test completed: duration {:.2f}, batch count {}, throughput {}",
                     measured.seconds, measured.batches, rate);
}

std::string listening_line(bool p2p, const std::string& address) {
  return fmt::format("Transfer Engine RPC using {}, listening on {}",
                     p2p ? "P2P handshake" : "new RPC mapping", address);
}

}  // namespace mooncake::bench
