// HTTP/1.1 server and client on a runtime's loop (net/runtime.h; another executor is refused with
// kNotSupported). Small bodies; metrics, health, metadata.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "net/address.h"
#include "os/cancel.h"
#include "os/env.h"

namespace mooncake::net {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query
  // Decoded, '+' is a space; the last of equal names wins.
  std::map<std::string, std::string> query;
  std::string authorization;  // the header field of this name; empty without one
  std::string body;
};
struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // If set, follows `body` in pieces: asked for the next one when the last has left, until it is
  // empty. Executor thread. So a long answer takes the memory of one piece.
  std::function<base::Task<std::string>()> more;
};

struct HttpLimits {
  std::size_t max_body = 1u << 20;  // beyond: 413
  std::size_t max_header = 16384;   // beyond: 431
  std::size_t max_connections = 256;
  // Also the time a request may take to arrive, and an answer to leave.
  base::Duration idle_timeout = std::chrono::seconds(30);
};

// Handlers run on the executor's thread and may suspend. Unknown path: 404; known path, other
// method (HEAD too): 405. Malformed: 400. Beyond the limit of connections, the one that has waited
// for a request for longest is closed; when all have sent one, the newest is answered with 503.
class HttpServer {
 public:
  using Handler = std::function<base::Task<HttpResponse>(const HttpRequest&)>;
  static Result<std::unique_ptr<HttpServer>> create(os::Env env, HttpLimits limits = {});
  virtual ~HttpServer() = default;

  // Before listen().
  virtual void route(std::string method, std::string path, Handler handler) = 0;
  // kAddressInUse names the address. Any thread, once.
  virtual Result<Address> listen(const Address& at) = 0;
  // Any thread but the runtime's; waits for the handlers. The destructor does it too.
  virtual void stop() = 0;
};

// One request, one connection. `url`: http://host[:port]/path?query. A body goes out as
// application/json; an answer of more than 16 MiB is kProtocolError. Errors name the URL:
// kUnreachable (also when connecting takes longer than `connect_timeout`), kDeadlineExceeded,
// kConnectionLost, kProtocolError, and kCancelled soon after a cancel. Any status is an answer.
// Executor thread.
base::Task<Result<HttpResponse>> http_request(
    os::Env env, std::string method, std::string url, std::string body, base::TimePoint deadline,
    base::Duration connect_timeout = base::Duration::max(), os::CancelToken* cancel = nullptr);

// Whether the request says "Authorization: Bearer SECRET". How long it takes tells nothing of the
// secret but its length.
bool shows_secret(const HttpRequest& request, std::string_view secret);

// Percent-encodes everything but unreserved characters.
std::string url_encode(std::string_view text);
// Broken escapes are kInvalidArgument.
Result<std::string> url_decode(std::string_view text);

}  // namespace mooncake::net
