// Unix sockets between processes of one host: small messages with file descriptors, who the peer is
// (from the kernel), and whether it still lives.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "mooncake/result.h"

namespace mooncake::os {

// Closes the descriptor at its end.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Messages keep their borders (SOCK_SEQPACKET); nothing here blocks. Names are abstract: they lie
// in no file system and end with their socket. Errors are kSystemCall or as said, and name the
// step.
class LocalSocket {
 public:
  static constexpr std::size_t kMaxMessage = 512;
  static constexpr std::size_t kMaxFds = 4;

  // kAddressInUse.
  static Result<LocalSocket> listen(const std::string& name);
  // kUnreachable when nobody listens under this name (which each network namespace has its own of).
  static Result<LocalSocket> connect(const std::string& name);
  // kBusy when nobody waits to be accepted.
  Result<LocalSocket> accept() const;

  // kBusy when the peer doesn't read; kConnectionLost.
  Result<void> send(base::ConstBuffer message, std::span<const int> fds = {}) const;
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
    bool fds_lost = false;  // more were sent: this process can have no more, or they were too many
  };
  // kBusy when nothing has come; kConnectionLost at the end; kProtocolError for a message that is
  // too long.
  Result<Message> receive() const;
  // The same for one message whose content doesn't matter.
  Result<void> drain() const;

  struct Credentials {
    pid_t pid = 0;  // 0: the peer lives in a pid namespace that we don't see
    uid_t uid = 0;
    gid_t gid = 0;
  };
  Result<Credentials> peer() const;

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }

  LocalSocket() = default;

 private:
  explicit LocalSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Readable once the process has exited, all its threads gone. kNotSupported before Linux 5.3.
Result<UniqueFd> open_process(pid_t pid);
// Whether this process (a pidfd) has exited, or has closed its end of this connection. Doesn't
// wait.
bool has_ended(const UniqueFd& process, const LocalSocket& connection);

}  // namespace mooncake::os
