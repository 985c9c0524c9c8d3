#include "common/program.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "common/say.h"

namespace mooncake::program {

void ignore_signals_of_calls() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

int run_server(std::string_view name, std::span<const Setting> table, int argc, char** argv,
               int (*serve)(const std::vector<std::string>& flags)) {
  ignore_signals_of_calls();
  const std::vector<std::string> flags(argv + 1, argv + argc);
  const auto said = help_or_version(name, table, flags);
  return said ? *said : serve(flags);
}

std::optional<int> help_or_version(std::string_view name, std::span<const Setting> table,
                                   std::span<const std::string> flags) {
  for (const std::string& flag : flags) {
    if (flag == "--help" || flag == "-help" || flag == "-h") {
      program::say(stdout, "{}", help_text(name, table));
      return 0;
    }
    if (flag == "--version" || flag == "-version") {
      program::say(stdout, "{} {}\n", name, MOONCAKE_VERSION);
      return 0;
    }
  }
  return std::nullopt;
}

void complain(std::string_view name, const Error& error) {
  program::say(stderr, "{}: {}\n", name, error.message());
}

void apply_log_level(std::string_view level) {
  using base::LogLevel;
  const std::string word = base::to_lower(level);
  base::set_log_level(word == "debug"                         ? LogLevel::kDebug
                      : word == "info"                        ? LogLevel::kInfo
                      : word == "warning"                     ? LogLevel::kWarning
                      : word == "error" || word == "critical" ? LogLevel::kError
                                                              : LogLevel::kOff);
}

void log_notices(const Settings& settings) {
  for (const std::string& notice : settings.notices())
    base::log_warning("{}", notice);
}

Error with_way_out(Error error, std::string_view host_flag, std::string_view port_flag) {
  const bool taken = error.code() == Code::kAddressInUse;
  return std::move(error).with_context(
      taken ? fmt::format("--{} (choose another port with --{}=N)", port_flag, port_flag)
            : fmt::format("--{}, --{}", host_flag, port_flag));
}

EndSignals::EndSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

bool EndSignals::is_pending() const {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1;
}

int EndSignals::wait() const {
  int number = 0;
  sigwait(&signals_, &number);
  return number;
}

void EndSignals::serve_until_one(std::string_view name, std::string_view where) const {
  program::say(stdout, "{} ready {}\n", name, where);
  std::fflush(stdout);
  base::log_info("signal {}: ending", wait());
}

}  // namespace mooncake::program
