#include "master_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

extern char** environ;

namespace mooncake::integration {

namespace {

std::string program() {
  const char* folder = std::getenv("MOONCAKE_BIN_DIR");
  if (folder == nullptr) throw std::runtime_error("MOONCAKE_BIN_DIR is not set");
  return std::string(folder) + "/mooncake_master";
}

// Reads until end of file, or until `until` has come.
std::string read_until(int fd, const std::string& until) {
  std::string text;
  char chunk[512];
  while (text.find(until) == std::string::npos) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got <= 0) break;
    text.append(chunk, static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    ::close(fd);
    throw std::runtime_error("no free port");
  }
  ::close(fd);
  return ntohs(address.sin_port);
}

MasterProcess::MasterProcess(std::vector<std::string> flags)
    : flags_(std::move(flags)), rpc_port_(free_port()), http_port_(free_port()) {
  start();
}

MasterProcess::~MasterProcess() { kill_hard(); }

std::string MasterProcess::rpc_address() const { return "127.0.0.1:" + std::to_string(rpc_port_); }

std::string MasterProcess::http_url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(http_port_) + path;
}

void MasterProcess::start() {
  std::vector<std::string> words = {program(),
                                    "-rpc_address=127.0.0.1",
                                    "-rpc_port=" + std::to_string(rpc_port_),
                                    "-metrics_host=127.0.0.1",
                                    "-metrics_port=" + std::to_string(http_port_),
                                    "-log_level=error"};
  words.insert(words.end(), flags_.begin(), flags_.end());
  std::vector<char*> arguments;
  for (std::string& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);

  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  const int failed =
      ::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  ::close(err[1]);
  if (failed != 0) throw std::runtime_error("cannot start " + words[0]);
  const std::string ready = read_until(out[0], "\n");
  ::close(out[0]);
  if (ready.find("ready") == std::string::npos) {
    errors_ = read_until(err[0], std::string(1, '\0'));
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
  }
  ::close(err[0]);
}

void MasterProcess::kill_hard() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
}

void MasterProcess::restart() {
  kill_hard();
  start();
}

}  // namespace mooncake::integration
