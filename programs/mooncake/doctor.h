// mooncake doctor: what this machine and these settings come to.
#pragma once

#include <string>
#include <vector>

namespace mooncake::doctor {

struct Options {
  bool json = false;
  std::string master;              // asked in any case; empty = the effective setting
  std::vector<std::string> peers;  // engines, host:port
  int timeout_ms = 2000;
};

// Prints settings with their source, what the machine allows, which paths lead to memory of each
// kind, and which to each peer, and why. 0 when nothing is wrong, 1 when something would fail.
int run(const Options& options);

}  // namespace mooncake::doctor
