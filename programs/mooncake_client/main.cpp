// mooncake_client: memory of this machine for a store's pool.
#include <fmt/format.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "common/program.h"
#include "http_pages.h"
#include "net/runtime.h"
#include "settings.h"

namespace {

using namespace mooncake;
namespace client = client_program;

constexpr std::string_view kName = "mooncake_client";

Result<Settings> read_settings(const std::vector<std::string>& flags) {
  SettingInputs inputs;
  inputs.flags = flags;
  inputs.environment = process_environment(client::client_settings());
  return Settings::resolve(client::client_settings(), inputs);
}

// What serves, ended in the reverse order: nobody asks a store that is going.
class Program {
 public:
  ~Program() {
    if (http_) http_->stop();
    if (store_) store_->close();
  }

  Result<void> start(const client::Plan& plan) {
    MC_TRY(store_, Store::create(plan.store));
    if (!plan.http) return {};
    MC_TRY(runtime_, net::Runtime::start("http"));
    MC_TRY(http_, net::HttpServer::create(runtime_->env()));
    client::add_client_pages(*http_, *store_);
    Result<net::Address> at = http_->listen(*plan.http);
    if (!at) return fail(program::with_way_out(std::move(at).error(), "host", "http_port"));
    return {};
  }
  const Store& store() const { return *store_; }

 private:
  std::unique_ptr<Store> store_;
  std::unique_ptr<net::Runtime> runtime_;
  std::unique_ptr<net::HttpServer> http_;
};

int serve(const std::vector<std::string>& flags) {
  const Result<Settings> settings = read_settings(flags);
  if (!settings) {
    program::complain(kName, settings.error());
    return program::kExitUsage;
  }
  program::apply_log_level(settings->text("log_level"));
  Result<client::Plan> plan = client::make_plan(*settings);
  if (!plan) {
    program::complain(kName, plan.error());
    return program::kExitUsage;
  }
  for (const std::string& notice : plan->notices)
    base::log_warning("{}", notice);
  const program::EndSignals ends;
  // A Master that does not answer keeps nobody who has been told to end.
  plan->store.interrupted = [&ends] { return ends.is_pending(); };
  Program serving;
  const Result<void> started = serving.start(*plan);
  if (ends.is_pending()) return 0;
  if (!started) {
    program::complain(kName, started.error());
    return program::kExitFailed;
  }
  ends.serve_until_one(
      kName, fmt::format("name={}{}", serving.store().local_name(),
                         plan->http ? " http=" + net::to_string(*plan->http) : std::string()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return program::run_server(kName, client::client_settings(), argc, argv, &serve);
}
