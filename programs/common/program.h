// What programs do the same way: their flags, their words, and their end.
#pragma once

#include <signal.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mooncake/config.h"

namespace mooncake::program {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// First thing in main(): a peer that is gone and a limit on the size of files are errors of a call,
// which names them.
void ignore_signals_of_calls();

// What main() of a server returns: prints what --help and --version ask for, else runs `serve` with
// the flags.
int run_server(std::string_view name, std::span<const Setting> table, int argc, char** argv,
               int (*serve)(const std::vector<std::string>& flags));

// The exit status, when --help or --version was asked for and has been printed.
std::optional<int> help_or_version(std::string_view name, std::span<const Setting> table,
                                   std::span<const std::string> flags);

// "name: message" on stderr.
void complain(std::string_view name, const Error& error);

// debug, info, warning, error, critical or off, in any case.
void apply_log_level(std::string_view level);
// One line for each knob that has no effect here.
void log_notices(const Settings& settings);

// Says which flags gave the address, and which one moves a port that is taken.
Error with_way_out(Error error, std::string_view host_flag, std::string_view port_flag);

// SIGINT and SIGTERM, held back from the moment it is made, before any thread starts.
class EndSignals {
 public:
  EndSignals();
  // Whether one has come that nobody has waited for. Any thread.
  bool is_pending() const;
  // Until one of them has come; which.
  int wait() const;
  // Prints the line by which a starter knows that `name` serves, and where; then wait().
  void serve_until_one(std::string_view name, std::string_view where) const;

 private:
  sigset_t signals_;
};

}  // namespace mooncake::program
