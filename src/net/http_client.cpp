#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "net/asio_access.h"
#include "net/http.h"
#include "net/http_io.h"
#include "net/http_url.h"

namespace mooncake::net {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using base::Task;
using boost::system::error_code;
using tcp = boost::asio::ip::tcp;
using Endpoints = std::vector<tcp::endpoint>;

constexpr std::size_t kMaxAnswer = 16u << 20;
constexpr std::uint32_t kMaxAnswerHeader = 65536;
// The parser has no limit of its own for what stands between chunks, and after the last.
constexpr std::size_t kMaxBuffered = 2 * kMaxAnswerHeader;

// A look-up can't be stopped; when it is too late, nobody waits for it any more.
struct Lookup {
  explicit Lookup(boost::asio::io_context& io) : resolver(io) {}
  tcp::resolver resolver;
  os::Completion<error_code>* waiter = nullptr;
  Endpoints endpoints;
  void end(error_code error) {
    if (waiter) std::exchange(waiter, nullptr)->set(error);
  }
};

Task<error_code> resolve(os::Executor& executor, boost::asio::io_context& io,
                         const Address& address, base::TimePoint deadline, os::CancelToken* cancel,
                         Endpoints& endpoints) {
  error_code error;
  const auto literal = boost::asio::ip::make_address(address.host, error);
  if (!error) {
    endpoints.emplace_back(literal, address.port);
    co_return error;
  }
  auto lookup = std::make_shared<Lookup>(io);
  os::Completion<error_code> done(executor);
  lookup->waiter = &done;
  const os::TimerId timer =
      executor.run_at(deadline, [lookup] { lookup->end(make_error_code(beast::error::timeout)); });
  lookup->resolver.async_resolve(
      address.host, std::to_string(address.port), tcp::resolver::numeric_service,
      [lookup](error_code failed, const tcp::resolver::results_type& found) {
        for (const auto& entry : found)
          lookup->endpoints.push_back(entry.endpoint());
        lookup->end(failed);
      });
  os::CancelToken::Watch watch(
      cancel, [&lookup] { lookup->end(make_error_code(boost::asio::error::operation_aborted)); });
  error = co_await done;
  executor.cancel(timer);
  endpoints = std::move(lookup->endpoints);
  co_return error;
}

class Exchange {
 public:
  Exchange(os::Env env, boost::asio::io_context& io, std::string url, base::TimePoint deadline,
           os::CancelToken* cancel)
      : env_(env),
        io_(io),
        stream_(io),
        url_(std::move(url)),
        deadline_(deadline),
        cancel_(cancel) {}

  Task<Result<void>> connect(const Address& address, base::Duration limit);
  Task<Result<HttpResponse>> run(http::request<http::string_body> request);

 private:
  tl::unexpected<Error> failed(Code code, std::string_view what, const error_code& error) const {
    if (os::is_cancelled(cancel_)) return fail(Code::kCancelled, url_);
    if (error == beast::error::timeout) code = Code::kDeadlineExceeded;
    return fail(code, url_ + ": " + std::string(what) + ": " + error.message());
  }

  // An operation on the stream, which a cancel ends.
  template <typename Start>
  Task<error_code> await_stream(Start start) {
    if (os::is_cancelled(cancel_)) co_return boost::asio::error::operation_aborted;
    Task<error_code> operation = await_io<error_code>(env_.executor, std::move(start));
    os::CancelToken::Watch watch(cancel_, [this] { stream_.cancel(); });
    co_return co_await operation;
  }

  const os::Env env_;
  boost::asio::io_context& io_;
  beast::tcp_stream stream_;
  const std::string url_;
  const base::TimePoint deadline_;
  os::CancelToken* const cancel_;
};

Task<Result<void>> Exchange::connect(const Address& address, base::Duration limit) {
  const base::TimePoint now = env_.now();
  const bool own_limit = limit < deadline_ - now;
  const base::TimePoint end = own_limit ? now + limit : deadline_;
  Endpoints endpoints;
  error_code error = co_await resolve(env_.executor, io_, address, end, cancel_, endpoints);
  if (!error) {
    stream_.expires_after(std::max(base::Duration(0), end - env_.now()));
    error = co_await await_stream(
        [this, &endpoints](auto done) { stream_.async_connect(endpoints, done); });
  }
  if (error == beast::error::timeout && own_limit) {
    co_return fail(Code::kUnreachable, url_ + ": connecting took too long");
  }
  if (error) co_return failed(Code::kUnreachable, "connect", error);
  error_code ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  co_return Result<void>();
}

Task<Result<HttpResponse>> Exchange::run(http::request<http::string_body> request) {
  stream_.expires_after(std::max(base::Duration(0), deadline_ - env_.now()));
  // A server may refuse before it has read all: then its answer counts, not that writing failed.
  const error_code written =
      co_await await_stream([&](auto done) { http::async_write(stream_, request, done); });
  if (written == beast::error::timeout) co_return failed(Code::kConnectionLost, "write", written);

  beast::flat_buffer buffer(kMaxBuffered);
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMaxAnswerHeader);
  parser.body_limit(kMaxAnswer);
  parser.skip(request.method() == http::verb::head);
  const error_code error =
      co_await await_stream([&](auto done) { http::async_read(stream_, buffer, parser, done); });
  if (error) {
    const bool malformed =
        error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message;
    co_return failed(malformed ? Code::kProtocolError : Code::kConnectionLost, "read", error);
  }
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  HttpResponse response;
  response.status = static_cast<int>(parser.get().result_int());
  response.content_type = std::string_view(parser.get()[http::field::content_type]);
  response.body = std::move(parser.get().body());
  co_return response;
}

}  // namespace

Task<Result<HttpResponse>> http_request(os::Env env, std::string method, std::string url,
                                        std::string body, base::TimePoint deadline,
                                        base::Duration connect_timeout, os::CancelToken* cancel) {
  boost::asio::io_context* io = io_context_of(env.executor);
  if (!io) co_return fail(Code::kNotSupported, "HTTP needs the executor of a net::Runtime");
  MC_CO_TRY(const HttpUrl parsed, parse_http_url(url));
  const http::verb verb = http::string_to_verb(method);
  if (verb == http::verb::unknown || (verb == http::verb::trace && !body.empty())) {
    co_return fail(Code::kInvalidArgument, "no HTTP method for this: " + base::quote(method));
  }
  if (deadline <= env.now()) co_return fail(Code::kDeadlineExceeded, url);
  http::request<http::string_body> request(verb, parsed.target, 11);
  request.set(http::field::host, parsed.authority);
  request.keep_alive(false);
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();

  Exchange exchange(env, *io, url, deadline, cancel);
  MC_CO_CHECK(co_await exchange.connect(parsed.address, connect_timeout));
  co_return co_await exchange.run(std::move(request));
}

}  // namespace mooncake::net
