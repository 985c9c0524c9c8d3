// Bytes of a connection become a request within the limits or an error with words, and the pieces
// of a URL survive being written and read again. The first byte chooses.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "net/http_url.h"

namespace {

using namespace mooncake;

void read_request(std::string_view bytes) {
  const net::HttpLimits limits{.max_body = 512, .max_header = 1024};
  const auto request = net::parse_http_request(bytes, limits);
  if (!request) {
    if (request.error().detail().empty()) std::abort();
    return;
  }
  if (request->body.size() > limits.max_body || request->method.empty()) std::abort();
  std::string target = net::url_encode(request->path) + "?";
  for (const auto& [name, value] : request->query) {
    target += net::url_encode(name) + "=" + net::url_encode(value) + "&";
  }
  net::HttpRequest again;
  if (!net::parse_target("/" + target, again)) std::abort();
  if (again.path != "/" + request->path || again.query != request->query) std::abort();
}

void read_url(std::string_view text) {
  const auto url = net::parse_http_url(text);
  if (!url) return;
  const auto again = net::parse_http_url("http://" + to_string(url->address) + url->target);
  if (!again || !(again->address == url->address) || again->target != url->target) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] == 'u') {
    read_url(bytes);
  } else {
    read_request(bytes);
  }
  return 0;
}
