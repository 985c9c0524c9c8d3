// URLs and request targets, without any HTTP library. For the HTTP server and client, and for who
// must check a URL before it is used.
#pragma once

#include <string>
#include <string_view>

#include "mooncake/result.h"
#include "net/address.h"
#include "net/http.h"

namespace mooncake::net {

inline constexpr std::size_t kMaxUrl = 8192;

struct HttpUrl {
  Address address;
  std::string authority;  // for the Host field, as given
  std::string target;     // "/path?query", encoded as given
};
// Only http:, without user names; a fragment is cut off. kInvalidArgument.
Result<HttpUrl> parse_http_url(std::string_view url);

// Fills in path and query from "/a%20b?c=d" or "http://host/a%20b?c=d". In the query '+' is a
// space.
Result<void> parse_target(std::string_view target, HttpRequest& request);

// What a server makes of the bytes of one connection, when `bytes` are all that arrive: the first
// request, or an error whose detail says what is wrong with it. For tests and fuzzers.
Result<HttpRequest> parse_http_request(std::string_view bytes, const HttpLimits& limits);

}  // namespace mooncake::net
