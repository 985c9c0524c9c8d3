#include "os/local_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

namespace mooncake::os {

namespace {

constexpr int kBacklog = 64;

tl::unexpected<Error> system_error(std::string_view what) {
  return fail(Code::kSystemCall, fmt::format("{}: {}", what, std::strerror(errno)));
}

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
};

std::optional<Name> abstract_name(const std::string& name) {
  Name result;
  if (name.empty() || name.size() + 1 > sizeof result.address.sun_path) return std::nullopt;
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

Result<UniqueFd> make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error("unix socket");
  return fd;
}

// Takes all descriptors that came, whatever else is wrong, so that none is leaked.
std::vector<UniqueFd> take_fds(const msghdr& header) {
  std::vector<UniqueFd> fds;
  auto* const message = const_cast<msghdr*>(&header);
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c != nullptr; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<LocalSocket> LocalSocket::listen(const std::string& name) {
  const auto at = abstract_name(name);
  if (!at) return fail(Code::kInvalidArgument, "unix socket name '" + name + "'");
  MC_TRY(UniqueFd fd, make_socket());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at->address), at->size) != 0) {
    if (errno == EADDRINUSE) return fail(Code::kAddressInUse, "unix socket '" + name + "'");
    return system_error("bind unix socket");
  }
  if (::listen(fd.get(), kBacklog) != 0) return system_error("listen on unix socket");
  return LocalSocket(std::move(fd));
}

Result<LocalSocket> LocalSocket::connect(const std::string& name) {
  const auto at = abstract_name(name);
  if (!at) return fail(Code::kInvalidArgument, "unix socket name '" + name + "'");
  MC_TRY(UniqueFd fd, make_socket());
  // Between Unix sockets it is done at once or not at all.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at->address), at->size) != 0) {
    return fail(Code::kUnreachable,
                fmt::format("unix socket '{}': {}", name, std::strerror(errno)));
  }
  return LocalSocket(std::move(fd));
}

Result<LocalSocket> LocalSocket::accept() const {
  UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) return LocalSocket(std::move(fd));
  if (errno == EAGAIN || errno == ECONNABORTED) return fail(Code::kBusy);
  return system_error("accept on unix socket");
}

Result<void> LocalSocket::send(base::ConstBuffer message, std::span<const int> fds) const {
  assert(!message.empty() && message.size() <= kMaxMessage && fds.size() <= kMaxFds);
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  if (::sendmsg(fd_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
  if (errno == EAGAIN || errno == ENOBUFS) return fail(Code::kBusy);
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
    return fail(Code::kConnectionLost);
  }
  return system_error("send on unix socket");
}

Result<LocalSocket::Message> LocalSocket::receive() const {
  Message message;
  message.bytes.resize(kMaxMessage + 1);
  iovec part{message.bytes.data(), message.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return fail(Code::kBusy);
    if (errno == ECONNRESET) return fail(Code::kConnectionLost);
    return system_error("receive on unix socket");
  }
  message.fds = take_fds(header);
  if (size == 0) return fail(Code::kConnectionLost, "the peer has closed its unix socket");
  message.fds_lost = (header.msg_flags & MSG_CTRUNC) != 0;
  if ((header.msg_flags & MSG_TRUNC) != 0 || static_cast<std::size_t>(size) > kMaxMessage) {
    return fail(Code::kProtocolError, "a message on a unix socket is too long");
  }
  message.bytes.resize(static_cast<std::size_t>(size));
  return message;
}

Result<void> LocalSocket::drain() const {
  std::byte first;
  const ssize_t size = ::recv(fd_.get(), &first, sizeof first, MSG_DONTWAIT);
  if (size > 0) return {};
  if (size == 0) return fail(Code::kConnectionLost, "the peer has closed its unix socket");
  if (errno == EAGAIN || errno == EINTR) return fail(Code::kBusy);
  if (errno == ECONNRESET) return fail(Code::kConnectionLost);
  return system_error("receive on unix socket");
}

Result<LocalSocket::Credentials> LocalSocket::peer() const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return system_error("SO_PEERCRED");
  }
  return Credentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<UniqueFd> open_process(pid_t pid) {
#ifndef SYS_pidfd_open
  constexpr long SYS_pidfd_open = 434;
#endif
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (fd) return fd;
  if (errno == ENOSYS) return fail(Code::kNotSupported, "pidfd_open needs Linux 5.3");
  return system_error(fmt::format("pidfd_open of {}", pid));
}

bool has_ended(const UniqueFd& process, const LocalSocket& connection) {
  std::array<pollfd, 2> polled{{{process.get(), POLLIN, 0}, {connection.fd(), POLLRDHUP, 0}}};
  return ::poll(polled.data(), polled.size(), 0) != 0;
}

}  // namespace mooncake::os
