// mooncake_master: the directory of a store.
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "metastore/http/metadata_routes.h"
#include "net/http.h"
#include "net/runtime.h"
#include "os/disk.h"
#include "os/run_blocking.h"
#include "store/master/http_front.h"
#include "store/master/settings.h"

namespace {

using namespace mooncake;
namespace master = store::master;

constexpr int kExitUsage = 2;
constexpr int kExitFailed = 1;

Result<Settings> read_settings(const std::vector<std::string>& flags) {
  const auto table = master::master_settings();
  SettingInputs inputs;
  inputs.flags = flags;
  inputs.environment = process_environment(table);
  MC_TRY(Settings settings, Settings::resolve(table, inputs));
  const std::string path = settings.text("config_path");
  if (path.empty()) return settings;
  Result<std::string> content = os::system_disk().read(path);
  if (!content) return fail(std::move(content).error().with_context("config_path"));
  MC_TRY(inputs.file, parse_config_file(path, *content));
  inputs.file_name = path;
  return Settings::resolve(table, inputs);
}

void apply_log_level(const std::string& level) {
  using base::LogLevel;
  base::set_log_level(level == "debug"     ? LogLevel::kDebug
                      : level == "info"    ? LogLevel::kInfo
                      : level == "warning" ? LogLevel::kWarning
                      : level == "error"   ? LogLevel::kError
                                           : LogLevel::kOff);
}

// Says which flags gave the address, and which one moves a port that is taken.
Error with_way_out(Error error, std::string_view host, std::string_view port) {
  const bool taken = error.code() == Code::kAddressInUse;
  return std::move(error).with_context(
      taken ? fmt::format("-{} (choose another port with -{}=N)", port, port)
            : fmt::format("-{}, -{}", host, port));
}

// Everything that serves, in the order in which it is bound; ended in the reverse order.
class Program {
 public:
  explicit Program(const master::MasterConfig& config) : config_(config) {}
  ~Program() { stop(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Result<void> start() {
    MC_TRY(runtime_, net::Runtime::start("master"));
    config_.server.identity.incarnation = static_cast<base::Incarnation>(base::secure_random() | 1);
    MC_TRY(master_, master::MasterServer::create(runtime_->env(), config_.server));
    MC_TRY(http_, net::HttpServer::create(runtime_->env()));
    master::add_master_routes(*http_, *master_);
    Result<net::Address> at = http_->listen(config_.http);
    if (!at) return fail(with_way_out(std::move(at).error(), "metrics_host", "metrics_port"));
    config_.http = *at;
    if (config_.serve_metadata) {
      MC_CHECK(start_metadata());
    }
    auto bound = os::run_blocking(runtime_->env().executor, listen(this));
    if (!bound) return fail(Code::kInternal, "the reactor stopped");
    if (!*bound) return fail(with_way_out(std::move(*bound).error(), "rpc_address", "rpc_port"));
    config_.rpc = **bound;
    return {};
  }

  const master::MasterConfig& config() const { return config_; }

 private:
  Result<void> start_metadata() {
    MC_TRY(metadata_, net::HttpServer::create(runtime_->env()));
    metastore::add_metadata_routes(*metadata_, std::make_shared<metastore::MetadataMap>());
    Result<net::Address> at = metadata_->listen(config_.metadata);
    if (!at)
      return fail(with_way_out(std::move(at).error(), "http_metadata_server_host",
                               "http_metadata_server_port"));
    return {};
  }
  static base::Task<Result<net::Address>> listen(Program* program) {
    co_return program->master_->listen(program->config_.rpc);
  }
  void stop() {
    if (metadata_) metadata_->stop();
    if (http_) http_->stop();
    if (master_) os::run_blocking(runtime_->env().executor, master_->stop());
    metadata_.reset();
    http_.reset();
    master_.reset();
    runtime_.reset();
  }

  master::MasterConfig config_;
  std::unique_ptr<net::Runtime> runtime_;
  std::unique_ptr<master::MasterServer> master_;
  std::unique_ptr<net::HttpServer> http_;
  std::unique_ptr<net::HttpServer> metadata_;
};

int run(const std::vector<std::string>& flags) {
  Result<Settings> settings = read_settings(flags);
  if (!settings) {
    fmt::print(stderr, "mooncake_master: {}\n", settings.error().message());
    return kExitUsage;
  }
  apply_log_level(settings->text("log_level"));
  for (const std::string& notice : settings->notices())
    base::log_warning("{}", notice);
  Result<master::MasterConfig> config = master::master_config(*settings);
  if (!config) {
    fmt::print(stderr, "mooncake_master: {}\n", config.error().message());
    return kExitUsage;
  }

  // Blocked before any thread starts, so that only sigwait() below sees them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  Program program(*config);
  if (Result<void> started = program.start(); !started) {
    fmt::print(stderr, "mooncake_master: {}\n", started.error().message());
    return kExitFailed;
  }
  fmt::print("mooncake_master ready rpc={} http={}\n", net::to_string(program.config().rpc),
             net::to_string(program.config().http));
  std::fflush(stdout);
  int signal_number = 0;
  sigwait(&ends, &signal_number);
  base::log_info("signal {}: ending", signal_number);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // A peer that is gone and a limit on the size of files are errors of a call, which names them.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  const std::vector<std::string> flags(argv + 1, argv + argc);
  for (const std::string& flag : flags) {
    if (flag == "--help" || flag == "-help" || flag == "-h") {
      fmt::print("{}", help_text("mooncake_master", master::master_settings()));
      return 0;
    }
    if (flag == "--version" || flag == "-version") {
      fmt::print("mooncake_master {}\n", MOONCAKE_VERSION);
      return 0;
    }
  }
  return run(flags);
}
