#include "net/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "base/text.h"

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

}  // namespace mooncake::net
