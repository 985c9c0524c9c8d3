// mooncake why: what became of a key.
#pragma once

#include <string>

namespace mooncake::why {

struct Options {
  std::string key;
  std::string master;  // host:port; empty = the effective setting
  bool json = false;
  int timeout_ms = 2000;
};

// Prints why a reader of the key gets it or misses it, and what the Master remembers of it. 0 when
// the key is there, 1 when it is not, 2 for wrong settings, 3 when the Master did not answer, which
// stderr says, with the way out.
int run(const Options& options);

}  // namespace mooncake::why
