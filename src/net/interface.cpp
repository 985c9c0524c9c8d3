#include "net/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "base/text.h"
#include "os/local_socket.h"

namespace mooncake::net {

Result<std::string> interface_address(const std::string& name) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    return fail(Code::kSystemCall, fmt::format("getifaddrs: {}", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, &::freeifaddrs);
  std::set<std::string> usable;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    usable.insert(each->ifa_name);
    if (name != each->ifa_name) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) {
      return std::string(text);
    }
  }
  return fail(Code::kInvalidArgument, fmt::format("{} is no interface with an IPv4 address: {}",
                                                  base::quote(name), fmt::join(usable, ", ")));
}

Result<std::string> address_towards(const Address& peer) {
  const auto no_way = [&peer](std::string_view why) {
    return fail(Code::kUnreachable, fmt::format("the way to {}: {}", to_string(peer), why));
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(peer.port);
  if (const int error = ::getaddrinfo(peer.host.c_str(), port.c_str(), &hints, &found)) {
    return no_way(::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  const os::UniqueFd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  char text[NI_MAXHOST] = {};
  if (socket.get() < 0 || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(socket.get(), address, &size) != 0) {
    return no_way(std::strerror(errno));
  }
  const int error = ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return no_way(::gai_strerror(error));
  return std::string(text);
}

}  // namespace mooncake::net
