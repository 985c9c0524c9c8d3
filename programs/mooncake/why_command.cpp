#include "why_command.h"

#include <chrono>

#include "common/say.h"
#include "mooncake/store.h"
#include "net/address.h"
#include "net/network.h"
#include "net/runtime.h"
#include "one_call.h"
#include "os/run_blocking.h"
#include "store/client/messages.h"
#include "store/why/explain.h"

namespace mooncake::why {

namespace {

constexpr std::uint16_t kMasterPort = 50051;
constexpr int kExitMissing = 1;
constexpr int kExitUsage = 2;
constexpr int kExitUnanswered = 3;

base::Task<Result<KeyReport>> ask(os::Env env, net::Address address, std::string secret,
                                  std::string key, base::TimePoint deadline) {
  const std::string_view asked(key);
  net::Bytes question = store::encode_why({&asked, 1}, store::kMaxWhyEvents);
  Result<net::Reply> reply = co_await call_once(env, std::move(address), "why", std::move(secret),
                                                net::Method::kWhy, std::move(question), deadline);
  if (!reply) co_return fail(std::move(reply).error());
  auto reports = store::decode_why(reply->body, {&asked, 1}, store::kMaxWhyEvents);
  if (!reports) co_return fail(std::move(reports).error());
  co_return std::move(reports->front());
}

// What helps against a Master that gives no answer.
std::string_view way_out(Code code) {
  switch (code) {
    case Code::kAuthenticationFailed:
      return "give its secret in MOONCAKE_CLUSTER_SECRET";
    case Code::kNotSupported:
      return "it is too old to be asked";
    default:
      return "is mooncake_master running there? --master host:port names another one";
  }
}

}  // namespace

int run(const Options& options) {
  SettingInputs inputs;
  inputs.environment = process_environment(store_settings());
  if (!options.master.empty()) inputs.arguments["master_server_addr"] = options.master;
  const Result<Settings> settings = Settings::resolve(store_settings(), inputs);
  if (!settings) {
    program::say(stderr, "mooncake why: {}\n", settings.error().message());
    return kExitUsage;
  }
  if (options.key.empty() || options.key.size() > store::kMaxKeyLength) {
    program::say(stderr, "mooncake why: a key has 1 to {} bytes, not {}\n", store::kMaxKeyLength,
                 options.key.size());
    return kExitUsage;
  }
  const std::string& name = settings->text("master_server_addr");
  const Result<net::Address> address = net::parse_address(name, kMasterPort);
  if (!address || name == "embedded") {
    program::say(stderr, "mooncake why: --master: {}\n",
                 address ? "an embedded Master can only be asked by its own process"
                         : address.error().message());
    return kExitUsage;
  }
  auto runtime = net::Runtime::start("why");
  if (!runtime) {
    program::say(stderr, "mooncake why: {}\n", runtime.error().message());
    return kExitUnanswered;
  }
  const os::Env env = (*runtime)->env();
  const auto deadline = env.now() + std::chrono::milliseconds(options.timeout_ms);
  const auto answer = os::run_blocking(
      env.executor, ask(env, *address, settings->text("cluster_secret"), options.key, deadline));
  if (!answer || !*answer) {
    const Error error = answer ? answer->error() : Error(Code::kInternal, "the reactor stopped");
    program::say(stderr, "mooncake why: Master {}: {}; {}\n", net::to_string(*address),
                 error.message(), way_out(error.code()));
    return kExitUnanswered;
  }
  const KeyReport& report = **answer;
  if (options.json) {
    program::say(stdout, "{}\n", store::report_json(options.key, report));
  } else {
    program::say(stdout, "{}\n{}", report.summary, store::timeline(report));
  }
  return report.state == KeyState::kPublished ? 0 : kExitMissing;
}

}  // namespace mooncake::why
