#include "demo.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
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

void print_outcome(const DemoOptions& options, const Report& report, const Comparison& comparison) {
  program::say(stdout, "{}",
               options.json ? render_json(report, comparison)
                            : render_table(report) + render_comparison(comparison));
  std::fflush(stdout);
}

// One replay. 0, or the exit status of what went wrong, which has been said then.
int replay(const DemoOptions& options, std::span<const workload::Request> requests,
           Report& report) {
  const MemoryPlan plan = plan_memory(options, requests);
  DemoRun run(options, plan, requests);
  Result<Report> outcome = run.run();
  if (!outcome) {
    program::say(stderr, "mooncake demo: {}\n", outcome.error().detail());
    return run.signal() != 0 ? kExitSignal + run.signal() : kExitClusterFailed;
  }
  report = std::move(*outcome);
  for (const WrongBlock& wrong : report.wrong) {
    program::say(stderr, "mooncake demo: WRONG BYTES: {}\n", describe(wrong));
  }
  return report.wrong_blocks == 0 ? kExitOk : kExitWrongBytes;
}

// By shared memory alone, where there is any, and by sockets alone.
int compare_paths(DemoOptions options, std::span<const workload::Request> requests,
                  const Report& report, Comparison& comparison) {
  if (options.compare == 0) return kExitOk;
  if (report.paths.count("shm") == 0) {
    program::say(stderr, "mooncake demo: nothing to compare, as no block went through shm\n");
    return kExitOk;
  }
  requests = requests.first(std::min<std::size_t>(requests.size(), options.compare));
  options.inject_corruption = false;
  for (const char* path : {"shm", "tcp"}) {
    options.path = path;
    program::say(stderr, "mooncake demo: the first {} requests again, by {} alone\n",
                 requests.size(), path);
    if (const int status = replay(options, requests, comparison[path]); status != kExitOk)
      return status;
  }
  return kExitOk;
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
  Report report;
  Comparison comparison;
  int status = replay(*options, *requests, report);
  if (status == kExitOk) status = compare_paths(*options, *requests, report, comparison);
  if (status == kExitOk || status == kExitWrongBytes) print_outcome(*options, report, comparison);
  return status;
}

}  // namespace mooncake::demo
