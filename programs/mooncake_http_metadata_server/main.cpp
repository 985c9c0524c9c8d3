// mooncake_http_metadata_server: keys and values over HTTP, for engines to find each other.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "common/program.h"
#include "metastore/http/metadata_routes.h"
#include "net/http.h"
#include "net/runtime.h"

namespace {

using namespace mooncake;

constexpr std::string_view kName = "mooncake_http_metadata_server";

constexpr Setting kSettings[] = {
    {.name = "host",
     .type = SettingType::kHost,
     .fallback = "0.0.0.0",
     .help = "address to listen on"},
    {.name = "port",
     .type = SettingType::kInteger,
     .fallback = "8080",
     .help = "port to listen on; 0 = a free one, which is printed",
     .minimum = 0,
     .maximum = 65535},
    {.name = "log_level",
     .type = SettingType::kChoice,
     .fallback = "INFO",
     .help = "least severe lines that are written to stderr",
     .allowed = "DEBUG|INFO|WARNING|ERROR|CRITICAL|OFF"},
    {.name = "max_keys",
     .type = SettingType::kInteger,
     .fallback = "1048576",
     .help = "keys kept at once; a new one beyond is answered with 507",
     .minimum = 1,
     .maximum = 1e9},
    {.name = "max_value_size",
     .type = SettingType::kBytes,
     .fallback = "1mb",
     .help = "of one value; a larger one is answered with 413",
     .minimum = 1,
     .maximum = metastore::kMaxValue},
    {.name = "max_total_size",
     .type = SettingType::kBytes,
     .fallback = "1gb",
     .help = "of all keys and values; what is beyond is answered with 507",
     .minimum = 1},
    {.name = "max_connections",
     .type = SettingType::kInteger,
     .fallback = "1024",
     .help = "open at once; beyond, the one that has been idle for longest is closed",
     .minimum = 1,
     .maximum = 1e6},
};

Result<Settings> read_settings(const std::vector<std::string>& flags) {
  SettingInputs inputs;
  inputs.flags = flags;
  return Settings::resolve(kSettings, inputs);
}

// Serves until it is destroyed.
class Program {
 public:
  ~Program() {
    if (server_) server_->stop();
  }

  Result<net::Address> start(const Settings& settings) {
    metastore::MetadataMap::Limits limits;
    limits.max_keys = static_cast<std::size_t>(settings.integer("max_keys"));
    limits.max_bytes = settings.bytes("max_total_size");
    limits.max_value = settings.bytes("max_value_size");
    net::HttpLimits http;
    http.max_body = limits.max_value;
    http.max_connections = static_cast<std::size_t>(settings.integer("max_connections"));
    MC_TRY(runtime_, net::Runtime::start("metadata"));
    MC_TRY(server_, net::HttpServer::create(runtime_->env(), http));
    metastore::add_metadata_service(*server_, std::make_shared<metastore::MetadataMap>(limits),
                                    metrics_);
    const net::Address at(settings.text("host"),
                          static_cast<std::uint16_t>(settings.integer("port")));
    auto bound = server_->listen(at);
    if (!bound) return fail(program::with_way_out(std::move(bound).error(), "host", "port"));
    return bound;
  }

 private:
  base::MetricsRegistry metrics_;
  std::unique_ptr<net::Runtime> runtime_;
  std::unique_ptr<net::HttpServer> server_;
};

int serve(const std::vector<std::string>& flags) {
  const Result<Settings> settings = read_settings(flags);
  if (!settings) {
    program::complain(kName, settings.error());
    return program::kExitUsage;
  }
  program::apply_log_level(settings->text("log_level"));
  const program::EndSignals ends;
  Program serving;
  const Result<net::Address> at = serving.start(*settings);
  if (!at) {
    program::complain(kName, at.error());
    return program::kExitFailed;
  }
  ends.serve_until_one(kName, fmt::format("http={}", net::to_string(*at)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return program::run_server(kName, kSettings, argc, argv, &serve);
}
