// A connection is one task: read a request, run its handler, write the answer, until someone stops.
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <openssl/crypto.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "base/log.h"
#include "net/asio_access.h"
#include "net/http.h"
#include "net/http_io.h"
#include "net/http_url.h"
#include "os/run_blocking.h"

namespace mooncake::net {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using base::Task;
using boost::system::error_code;
using tcp = boost::asio::ip::tcp;

constexpr std::size_t kReadAtOnce = 16384;
// After a refusal the client may still be sending; what it sends is read and forgotten for a while,
// so that a reset doesn't overtake the answer.
constexpr std::size_t kLingerBytes = 4u << 20;
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // when descriptors have run out
constexpr base::Duration kWarningInterval = std::chrono::minutes(1);

using Parser = http::request_parser<http::string_body>;
using Request = http::request<http::string_body>;

void set_limits(Parser& parser, const HttpLimits& limits) {
  parser.header_limit(static_cast<std::uint32_t>(limits.max_header));
  parser.body_limit(limits.max_body);
}

Result<HttpRequest> to_request(const Request& from) {
  HttpRequest request;
  request.method = std::string_view(from.method_string());
  MC_CHECK(parse_target(std::string_view(from.target()), request));
  request.authorization = std::string_view(from[http::field::authorization]);
  request.body = from.body();
  return request;
}

HttpResponse text_response(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

// A body in another coding would be taken for no body, and its bytes for the next request.
bool has_unknown_coding(const Request& request) {
  const auto [first, last] = request.equal_range(http::field::transfer_encoding);
  return std::any_of(first, last,
                     [](const auto& field) { return !beast::iequals(field.value(), "chunked"); });
}

// What to answer when reading failed; nothing when nobody is there to read it.
std::optional<HttpResponse> answer_to(const error_code& error) {
  if (error == boost::system::errc::not_supported) {
    return text_response(501, "no other transfer coding than chunked is known");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return text_response(431, "header is too large");
  }
  if (error == http::error::body_limit) return text_response(413, "body is too large");
  if (error == http::error::end_of_stream || error == http::error::partial_message) return {};
  if (error.category() != http::make_error_code(http::error::bad_method).category()) return {};
  return text_response(400, "malformed request: " + error.message());
}

// kIdle: between requests, in the head of one, or after the last.
enum class Stage { kIdle, kBody, kHandler, kAnswer };

struct Session {
  explicit Session(tcp::socket socket, std::size_t max_buffer)
      : stream(std::move(socket)), buffer(max_buffer) {}
  void close() {
    error_code ignored;
    stream.socket().close(ignored);
  }
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  Stage stage = Stage::kIdle;
};

struct Route {
  std::map<std::string, HttpServer::Handler> methods;
  std::string allow() const {
    std::string names;
    for (const auto& [method, handler] : methods)
      names += (names.empty() ? "" : ", ") + method;
    return names;
  }
};

class Server final : public HttpServer {
 public:
  Server(os::Env env, HttpLimits limits, boost::asio::io_context& io)
      : env_(env), limits_(limits), acceptor_(io) {}
  ~Server() override { stop(); }

  void route(std::string method, std::string path, Handler handler) override {
    routes_[std::move(path)].methods[std::move(method)] = std::move(handler);
  }
  Result<Address> listen(const Address& at) override;
  void stop() override;

 private:
  Result<Address> open(const Address& at);
  Task<void> accept_all();
  void warn(const error_code& error);
  Task<void> serve(std::list<Session>::iterator session);
  Task<bool> serve_one(Session& session);
  Task<error_code> read(Session& session, Parser& parser);
  Task<error_code> read_some(Session& session, base::Duration limit);
  Task<error_code> write(Session& session, const Request& request, HttpResponse response,
                         bool keep_alive);
  Task<error_code> write_pieces(Session& session, http::response<http::string_body>& message,
                                HttpResponse& response);
  Task<error_code> write_piece(Session& session, const std::string& piece, bool chunked);
  template <typename Message>
  Task<error_code> write_message(Session& session, Message& message);
  Task<HttpResponse> handle(const HttpRequest& request);
  Task<void> linger(Session& session);
  Task<void> stop_all();
  bool make_room();
  void refuse(tcp::socket socket);

  const os::Env env_;
  const HttpLimits limits_;
  std::map<std::string, Route> routes_;
  std::atomic<bool> stopped_{false};  // stop() has been called

  // Executor thread.
  tcp::acceptor acceptor_;
  std::list<Session> sessions_;  // who has waited for a request for longest comes first
  base::TaskGroup tasks_;
  base::TimePoint next_warning_{};
  bool stopping_ = false;
};

Result<Address> Server::open(const Address& at) {
  error_code error;
  auto address = boost::asio::ip::make_address(at.host, error);
  if (error) {
    tcp::resolver resolver(acceptor_.get_executor());
    const auto found = resolver.resolve(at.host, std::to_string(at.port), error);
    if (error) return fail(Code::kSystemCall, "listen " + to_string(at) + ": " + error.message());
    address = found.begin()->endpoint().address();
  }
  const tcp::endpoint endpoint(address, at.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
  const tcp::endpoint bound = error ? endpoint : acceptor_.local_endpoint(error);
  if (error) {
    error_code ignored;
    acceptor_.close(ignored);
    const bool in_use = error == boost::asio::error::address_in_use;
    return fail(in_use ? Code::kAddressInUse : Code::kSystemCall,
                "listen " + to_string(at) + ": " + error.message());
  }
  return Address(at.host, bound.port());
}

Result<Address> Server::listen(const Address& at) {
  MC_TRY(Address address, open(at));
  if (!env_.executor.post([this] { tasks_.start(accept_all()); })) {
    return fail(Code::kNotReady, "the runtime has stopped");
  }
  return address;
}

void Server::stop() {
  if (stopped_.exchange(true)) return;
  os::run_blocking(env_.executor, stop_all());
}

Task<void> Server::stop_all() {
  stopping_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  for (Session& session : sessions_) {
    if (session.stage != Stage::kHandler) session.close();  // handlers are waited for
  }
  co_await tasks_.join();
}

Task<void> Server::accept_all() {
  while (!stopping_) {
    tcp::socket socket(acceptor_.get_executor());
    const error_code error = co_await await_io<error_code>(
        env_.executor, [this, &socket](auto done) { acceptor_.async_accept(socket, done); });
    if (stopping_) break;
    if (error) {
      warn(error);
      co_await env_.executor.sleep_for(kAcceptPause);
    } else if (sessions_.size() >= limits_.max_connections && !make_room()) {
      refuse(std::move(socket));
    } else {
      sessions_.emplace_back(std::move(socket), limits_.max_header + kReadAtOnce);
      tasks_.start(serve(std::prev(sessions_.end())));
    }
  }
}

// Who waits stays in the kernel's queue, so a shortage fails again after each pause.
void Server::warn(const error_code& error) {
  if (env_.now() < next_warning_) return;
  next_warning_ = env_.now() + kWarningInterval;
  base::log_warning("HTTP: accept: {}", error.message());
}

// Closes the connection that has waited for longest, else the one whose request takes longest to
// arrive: clients that say nothing must not lock out one that asks for our health.
bool Server::make_room() {
  for (const Stage stage : {Stage::kIdle, Stage::kBody}) {
    for (Session& session : sessions_) {
      if (session.stage != stage || !session.stream.socket().is_open()) continue;
      session.close();
      return true;
    }
  }
  return false;
}

void Server::refuse(tcp::socket socket) {
  static constexpr char kBusy[] =
      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(boost::asio::buffer(kBusy, sizeof kBusy - 1), ignored);
  socket.shutdown(tcp::socket::shutdown_both, ignored);
}

Task<void> Server::serve(std::list<Session>::iterator session) {
  error_code ignored;
  session->stream.socket().set_option(tcp::no_delay(true), ignored);
  while (co_await serve_one(*session)) {
    session->stage = Stage::kIdle;
    sessions_.splice(sessions_.end(), sessions_, session);
  }
  session->close();
  sessions_.erase(session);
}

// False when the connection has done its service.
Task<bool> Server::serve_one(Session& session) {
  Parser parser;
  set_limits(parser, limits_);
  const error_code error = co_await read(session, parser);
  if (error) {
    std::optional<HttpResponse> answer = answer_to(error);
    if (!answer || stopping_) co_return false;
    session.stage = Stage::kAnswer;
    Task<error_code> writing = write(session, parser.get(), std::move(*answer), false);
    const error_code written = co_await writing;
    session.stage = Stage::kIdle;
    if (!written) co_await linger(session);
    co_return false;
  }
  if (!session.stream.socket().is_open()) co_return false;  // closed while its last bytes came
  const Request raw = parser.release();
  const Result<HttpRequest> request = to_request(raw);
  HttpResponse response;
  if (request) {
    session.stage = Stage::kHandler;
    Task<HttpResponse> handling = handle(*request);
    response = co_await handling;
  } else {
    response = text_response(400, request.error().message());
  }
  session.stage = Stage::kAnswer;
  const bool keep_alive = raw.keep_alive() && !stopping_;
  Task<error_code> writing = write(session, raw, std::move(response), keep_alive);
  const error_code written = co_await writing;
  co_return !written && keep_alive && !stopping_;
}

Task<error_code> Server::read_some(Session& session, base::Duration limit) {
  session.stream.expires_after(limit);
  std::size_t size = 0;
  const error_code error =
      co_await await_io<error_code>(env_.executor, [&session, &size](auto done) {
        session.stream.async_read_some(session.buffer.prepare(kReadAtOnce),
                                       [&size, done](error_code failed, std::size_t got) {
                                         size = got;
                                         done(failed);
                                       });
      });
  session.buffer.commit(size);
  co_return error;
}

// Waits for a request, and from its first byte on for the whole of it, each for the idle time at
// most.
Task<error_code> Server::read(Session& session, Parser& parser) {
  error_code error;
  if (session.buffer.size() == 0) {
    error = co_await read_some(session, limits_.idle_timeout);
    if (error) co_return error;
  }
  session.stream.expires_after(limits_.idle_timeout);
  error = co_await await_io<error_code>(env_.executor, [&](auto done) {
    http::async_read_header(session.stream, session.buffer, parser, done);
  });
  if (!error && has_unknown_coding(parser.get())) {
    error = make_error_code(boost::system::errc::not_supported);
  }
  if (error || parser.is_done()) co_return error;
  session.stage = Stage::kBody;
  if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    http::response<http::empty_body> go_on(http::status::continue_, 11);
    error = co_await await_io<error_code>(
        env_.executor, [&](auto done) { http::async_write(session.stream, go_on, done); });
    if (error) co_return error;
  }
  co_return co_await await_io<error_code>(env_.executor, [&](auto done) {
    http::async_read(session.stream, session.buffer, parser, done);
  });
}

Task<HttpResponse> Server::handle(const HttpRequest& request) {
  const auto route = routes_.find(request.path);
  if (route == routes_.end()) co_return text_response(404, "not found");
  const auto handler = route->second.methods.find(request.method);
  if (handler == route->second.methods.end()) co_return text_response(405, "method not allowed");
  Task<HttpResponse> task = handler->second(request);
  co_return co_await task;
}

template <typename Message>
Task<error_code> Server::write_message(Session& session, Message& message) {
  session.stream.expires_after(limits_.idle_timeout);
  co_return co_await await_io<error_code>(env_.executor, [&session, &message](auto done) {
    http::async_write(session.stream, message, done);
  });
}

Task<error_code> Server::write(Session& session, const Request& request, HttpResponse response,
                               bool keep_alive) {
  const bool known = response.status >= 100 && response.status <= 599;
  http::response<http::string_body> message(
      static_cast<http::status>(known ? response.status : 500), 11);
  message.set(http::field::content_type, response.content_type);
  if (response.status == 405) {
    const std::string_view target(request.target());
    HttpRequest named;
    if (parse_target(target, named) && routes_.contains(named.path)) {
      message.set(http::field::allow, routes_.at(named.path).allow());
    }
  }
  const bool pieces = static_cast<bool>(response.more);
  if (pieces) {
    message.version(request.version() == 10 ? 10 : 11);
    message.keep_alive(keep_alive);
    Task<error_code> writing = write_pieces(session, message, response);
    co_return co_await writing;
  }
  const bool bodyless = response.status < 200 || response.status == 204 || response.status == 304;
  if (!bodyless) message.body() = std::move(response.body);
  message.prepare_payload();
  message.version(request.version() == 10 ? 10 : 11);
  message.keep_alive(keep_alive);
  if (request.method() != http::verb::head) co_return co_await write_message(session, message);
  http::response<http::empty_body> head(std::move(message.base()));
  co_return co_await write_message(session, head);
}

// In chunks; to HTTP/1.0, which knows none, until the connection ends.
Task<error_code> Server::write_pieces(Session& session, http::response<http::string_body>& message,
                                      HttpResponse& response) {
  const bool chunked = message.version() == 11;
  if (chunked) message.chunked(true);
  if (!chunked) message.keep_alive(false);
  http::response_serializer<http::string_body> head(message);
  session.stream.expires_after(limits_.idle_timeout);
  error_code error = co_await await_io<error_code>(
      env_.executor, [&](auto done) { http::async_write_header(session.stream, head, done); });
  std::string piece = std::move(response.body);
  bool first = true;
  while (!error && !stopping_) {
    if (!first || piece.empty()) {
      Task<std::string> asking = response.more();
      piece = co_await asking;
    }
    first = false;
    if (piece.empty()) break;
    Task<error_code> writing = write_piece(session, piece, chunked);
    error = co_await writing;
  }
  if (!error && stopping_) error = boost::asio::error::operation_aborted;
  if (error) co_return error;
  if (!chunked) co_return make_error_code(http::error::end_of_stream);
  session.stream.expires_after(limits_.idle_timeout);
  co_return co_await await_io<error_code>(env_.executor, [&](auto done) {
    boost::asio::async_write(session.stream, http::make_chunk_last(), done);
  });
}

Task<error_code> Server::write_piece(Session& session, const std::string& piece, bool chunked) {
  session.stream.expires_after(limits_.idle_timeout);
  const auto bytes = boost::asio::buffer(piece);
  co_return co_await await_io<error_code>(env_.executor, [&](auto done) {
    if (chunked) {
      boost::asio::async_write(session.stream, http::make_chunk(bytes), done);
    } else {
      boost::asio::async_write(session.stream, bytes, done);
    }
  });
}

Task<void> Server::linger(Session& session) {
  error_code error;
  session.stream.socket().shutdown(tcp::socket::shutdown_send, error);
  const base::TimePoint end = env_.now() + kLingerTime;
  for (std::size_t left = kLingerBytes; left > 0 && !error && !stopping_;) {
    const base::Duration limit = end - env_.now();
    if (limit <= base::Duration(0)) break;
    session.buffer.clear();
    error = co_await read_some(session, limit);
    left -= std::min(left, session.buffer.size());
  }
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::create(os::Env env, HttpLimits limits) {
  boost::asio::io_context* io = io_context_of(env.executor);
  if (!io) return fail(Code::kNotSupported, "HTTP needs the executor of a net::Runtime");
  return std::make_unique<Server>(env, limits, *io);
}

bool shows_secret(const HttpRequest& request, std::string_view secret) {
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view given = request.authorization;
  if (!beast::iequals(given.substr(0, kScheme.size()), kScheme)) return false;
  given.remove_prefix(kScheme.size());
  return given.size() == secret.size() &&
         CRYPTO_memcmp(given.data(), secret.data(), secret.size()) == 0;
}

Result<HttpRequest> parse_http_request(std::string_view bytes, const HttpLimits& limits) {
  Parser parser;
  set_limits(parser, limits);
  parser.eager(true);
  while (!parser.is_done()) {
    error_code error;
    const std::size_t used = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
    bytes.remove_prefix(used);
    if (error == http::error::need_more || (!error && used == 0)) {
      return fail(Code::kProtocolError, "incomplete request");
    }
    if (error) return fail(Code::kProtocolError, error.message());
  }
  return to_request(parser.get());
}

}  // namespace mooncake::net
