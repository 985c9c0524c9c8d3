// transfer_engine_bench: how fast one engine reads from or writes to another.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "common/program.h"
#include "common/say.h"
#include "transfer/engine.h"
#include "transfer_engine_bench/initiator.h"
#include "transfer_engine_bench/memory.h"
#include "transfer_engine_bench/report.h"
#include "transfer_engine_bench/settings.h"

namespace {

using namespace mooncake;

constexpr std::string_view kName = "transfer_engine_bench";

int failed(const Error& error) {
  program::complain(kName, error);
  return program::kExitFailed;
}

Result<bench::Plan> read_plan(const std::vector<std::string>& flags) {
  SettingInputs inputs;
  inputs.flags = flags;
  inputs.environment = process_environment(bench::bench_settings());
  MC_TRY(const Settings settings, Settings::resolve(bench::bench_settings(), inputs));
  return bench::make_plan(settings);
}

void say_listening(const bench::Plan& plan, const TransferEngine& engine) {
  const bool p2p = plan.engine.metadata_server == "P2PHANDSHAKE";
  program::say(stdout, "{}\n", bench::listening_line(p2p, engine.local_name()));
  std::fflush(stdout);
}

int run_target(const bench::Plan& plan) {
  const program::EndSignals ends;
  const auto engine = TransferEngine::create(plan.engine);
  if (!engine) return failed(engine.error());
  const auto memory = bench::Memory::create(**engine, plan.buffer_size, plan.pool_memory);
  if (!memory) return failed(memory.error());
  bench::fill(memory->bytes(), bench::Side::kTarget);
  say_listening(plan, **engine);
  ends.wait();
  return 0;
}

int run_initiator(const bench::Plan& plan) {
  const auto engine = TransferEngine::create(plan.engine);
  if (!engine) return failed(engine.error());
  const auto memory = bench::Memory::create(**engine, plan.buffer_size, plan.pool_memory);
  if (!memory) return failed(memory.error());
  bench::fill(memory->bytes(), bench::Side::kInitiator);
  say_listening(plan, **engine);
  const auto measured = bench::measure(**engine, plan, *memory);
  if (!measured) return failed(measured.error());
  for (const auto& [path, bytes] : (*engine)->engine().bytes_by_path())
    program::say(stdout, "Path taken: {}, {} bytes\n", path, bytes);
  program::say(stdout, "{}\n", *bench::result_line(*measured, plan.unit, plan.precision));
  std::fflush(stdout);
  if (!plan.verify) return 0;
  const auto verified = bench::verify(**engine, plan, *memory);
  if (!verified) return failed(verified.error());
  program::say(stdout, "Data verified: {} bytes\n", *verified);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  program::ignore_signals_of_calls();
  const std::vector<std::string> flags(argv + 1, argv + argc);
  const auto said = program::help_or_version(kName, bench::bench_settings(), flags);
  if (said) return *said;
  const Result<bench::Plan> plan = read_plan(flags);
  if (!plan) {
    program::complain(kName, plan.error());
    return program::kExitUsage;
  }
  for (const std::string& notice : plan->notices)
    base::log_warning("{}", notice);
  return plan->mode == bench::Mode::kTarget ? run_target(*plan) : run_initiator(*plan);
}
