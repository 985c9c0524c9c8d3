// MasterProcess: a real mooncake_master on loopback, for tests that kill it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace mooncake::integration {

class MasterProcess {
 public:
  // Starts it and waits for its line on stdout. Ports: 0 = free ones, chosen now and kept for
  // restart().
  explicit MasterProcess(std::vector<std::string> flags = {});
  ~MasterProcess();  // ends it
  MasterProcess(const MasterProcess&) = delete;
  MasterProcess& operator=(const MasterProcess&) = delete;

  bool running() const { return pid_ > 0; }
  std::string rpc_address() const;
  std::string http_url(const std::string& path) const;
  // What it wrote on stderr when it could not start.
  const std::string& errors() const { return errors_; }

  void kill_hard();  // SIGKILL, and reaped
  void restart();    // on the same ports

 private:
  void start();

  std::vector<std::string> flags_;
  std::uint16_t rpc_port_ = 0;
  std::uint16_t http_port_ = 0;
  pid_t pid_ = -1;
  std::string errors_;
};

// A port of 127.0.0.1 that was free a moment ago.
std::uint16_t free_port();

}  // namespace mooncake::integration
