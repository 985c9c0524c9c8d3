// mooncake_master: the directory of a store.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "common/program.h"
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

using program::kExitFailed;
using program::kExitUsage;
using program::with_way_out;

constexpr std::string_view kName = "mooncake_master";

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
    master::add_master_routes(
        *http_, *master_, {net::to_string(config_.rpc), config_.server.identity.cluster_secret});
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

bool is_loopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

int serve(const std::vector<std::string>& flags) {
  const Result<Settings> settings = read_settings(flags);
  if (!settings) {
    program::complain(kName, settings.error());
    return kExitUsage;
  }
  program::apply_log_level(settings->text("log_level"));
  program::log_notices(*settings);
  const Result<master::MasterConfig> config = master::master_config(*settings);
  if (!config) {
    program::complain(kName, config.error());
    return kExitUsage;
  }

  const program::EndSignals ends;
  Program serving(*config);
  if (const Result<void> started = serving.start(); !started) {
    program::complain(kName, started.error());
    return kExitFailed;
  }
  if (settings->text("cluster_secret").empty() && !is_loopback(serving.config().rpc.host)) {
    base::log_warning("{} serves whoever reaches it; MOONCAKE_CLUSTER_SECRET keeps strangers out",
                      net::to_string(serving.config().rpc));
  }
  ends.serve_until_one(kName, fmt::format("rpc={} http={}", net::to_string(serving.config().rpc),
                                          net::to_string(serving.config().http)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return program::run_server(kName, master::master_settings(), argc, argv, &serve);
}
