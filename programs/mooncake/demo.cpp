#include "demo.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <span>
#include <vector>

#include "common/say.h"
#include "demo_memory.h"
#include "demo_options.h"
#include "demo_report.h"
#include "demo_run.h"

namespace mooncake::demo {

namespace {

// "mooncake demo: --block-bytes: '0' is not in 64 B..1 GiB"
int refuse(const Error& error) {
  const bool option = error.code() == Code::kInvalidArgument && !error.detail().empty();
  program::say(stderr, "mooncake demo: {}{}\n", option ? "--" : "",
               option ? std::string(error.detail()) : error.message());
  return kExitUsage;
}

void print_outcome(const DemoOptions& options, const Report& report) {
  program::say(stdout, "{}", options.json ? render_json(report) : render_table(report));
  std::fflush(stdout);
  for (const WrongBlock& wrong : report.wrong) {
    program::say(stderr, "mooncake demo: WRONG BYTES: {}\n", describe(wrong));
  }
}

}  // namespace

int demo_command(const std::map<std::string, std::string>& given) {
  const auto options = parse_options(given);
  if (!options) return refuse(options.error());
  const auto requests = load_requests(*options);
  if (!requests) return refuse(requests.error());
  const MemoryPlan plan = plan_memory(*options, *requests);
  const auto available = available_memory();
  if (available) {
    const Result<void> fits = check_fits(plan, *options, *available);
    if (!fits) return refuse(fits.error());
  }

  ::signal(SIGPIPE, SIG_IGN);  // a reader that has gone must not leave processes behind
  DemoRun run(*options, plan, *requests);
  const Result<Report> report = run.run();
  if (!report) {
    program::say(stderr, "mooncake demo: {}\n", report.error().detail());
    return run.signal() != 0 ? kExitSignal + run.signal() : kExitClusterFailed;
  }
  print_outcome(*options, *report);
  return report->wrong_blocks == 0 ? kExitOk : kExitWrongBytes;
}

}  // namespace mooncake::demo
