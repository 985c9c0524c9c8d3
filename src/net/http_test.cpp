// The HTTP server against well-behaved, hostile and slow clients on loopback, and the client
// against servers that answer, refuse, garble, fall silent and hang up.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <string>
#include <thread>

#include "net/http.h"
#include "net/http_url.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "os/sim_executor.h"

namespace mooncake::net {
namespace {

using namespace std::chrono_literals;

// A blocking socket that ends a test which hangs.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  RawSocket() : RawSocket(::socket(AF_INET, SOCK_STREAM, 0)) {}
  explicit RawSocket(const Address& to) : RawSocket() { connect(to); }
  ~RawSocket() { ::close(fd_); }
  RawSocket(const RawSocket&) = delete;

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void connect(const Address& to) {
    const sockaddr_in address = loopback(to.port);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void finish() { ::shutdown(fd_, SHUT_WR); }
  // Until the peer closes, or `end` has come.
  std::string receive(std::string_view end = "") {
    std::string text;
    char part[4096];
    while (end.empty() || text.find(end) == std::string::npos) {
      const ssize_t got = ::recv(fd_, part, sizeof part, 0);
      if (got <= 0) {
        closed = got == 0 || errno == ECONNRESET;
        break;
      }
      text.append(part, static_cast<std::size_t>(got));
    }
    return text;
  }
  bool closed = false;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Accepts one connection, takes a request's header, and answers with fixed bytes.
class RawServer {
 public:
  explicit RawServer(std::string answer, bool hang_up = true)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = RawSocket::loopback(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/x";
    thread_ = std::thread([this, answer = std::move(answer), hang_up] {
      RawSocket peer(::accept(fd_, nullptr, nullptr));
      request = peer.receive("\r\n\r\n");
      peer.send(answer);
      if (!hang_up) peer.receive();
    });
  }
  ~RawServer() {
    join();
    ::close(fd_);
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::string url;
  std::string request;

 private:
  int fd_;
  std::thread thread_;
};

base::Task<HttpResponse> echo(const HttpRequest& request) {
  HttpResponse response;
  response.body = request.method + " " + request.path + " " + request.body;
  for (const auto& [name, value] : request.query)
    response.body += " " + name + "=" + value;
  co_return response;
}

base::Task<HttpResponse> answer_after(std::promise<void>& entered, os::Completion<bool>& release) {
  entered.set_value();
  co_await release;
  co_return HttpResponse{};
}

struct Http : testing::Test {
  void serve(HttpLimits limits = {}) {
    server = HttpServer::create(runtime->env(), limits).value();
    for (const char* method : {"GET", "PUT"})
      server->route(method, "/echo", echo);
    server->route("HEAD", "/head", echo);
    address = server->listen({"127.0.0.1", 0}).value();
  }
  std::string url(std::string_view path) {
    return "http://" + to_string(address) + std::string(path);
  }
  Result<HttpResponse> request(std::string method, std::string at, std::string body = "",
                               base::Duration within = 20s) {
    os::Env env = runtime->env();
    return *os::run_blocking(env.executor, http_request(env, std::move(method), std::move(at),
                                                        std::move(body), env.now() + within));
  }
  // All that comes back when these bytes are all that a client sends.
  std::string raw(std::string_view text) {
    RawSocket socket(address);
    socket.send(text);
    socket.finish();
    return socket.receive();
  }

  std::unique_ptr<Runtime> runtime = Runtime::start("http_test").value();
  std::unique_ptr<HttpServer> server;
  Address address;
};

TEST_F(Http, RequestsReachTheirHandlers) {
  serve();
  const auto response = request("PUT", url("/echo?a=1%202&b=x+y"), "body");
  ASSERT_TRUE(response) << response.error().message();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->body, "PUT /echo body a=1 2 b=x y");
  EXPECT_EQ(response->content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(request("GET", url("/other"))->status, 404);
  EXPECT_EQ(request("POST", url("/echo"))->status, 405);
  EXPECT_EQ(request("HEAD", url("/echo"))->status, 405);
  const auto head = request("HEAD", url("/head"));
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
  const std::string binary("\0\xff\r\n", 4);
  EXPECT_EQ(request("PUT", url("/echo"), binary)->body, "PUT /echo " + binary);
  EXPECT_NE(raw("DELETE /echo HTTP/1.1\r\n\r\n").find("Allow: GET, PUT\r\n"), std::string::npos);
}

TEST_F(Http, ConnectionsAreKeptAlive) {
  serve();
  RawSocket socket(address);
  socket.send("GET /echo?n=1 HTTP/1.1\r\n\r\nGET /echo?n=2 HTTP/1.1\r\n\r\n");
  std::string text = socket.receive("n=2");
  EXPECT_NE(text.find("n=1"), std::string::npos);
  socket.send("GET /echo?n=3 HTTP/1.1\r\nConnection: close\r\n\r\n");
  text = socket.receive();
  EXPECT_NE(text.find("n=3"), std::string::npos);
  EXPECT_TRUE(socket.closed);
  EXPECT_NE(raw("GET /echo HTTP/1.0\r\n\r\n").find("HTTP/1.0 200"), std::string::npos);
}

TEST_F(Http, LimitsHaveTheirAnswers) {
  serve({.max_body = 100, .max_header = 500});
  EXPECT_EQ(request("PUT", url("/echo"), std::string(100, 'x'))->status, 200);
  EXPECT_EQ(request("PUT", url("/echo"), std::string(101, 'x'))->status, 413);
  EXPECT_EQ(request("PUT", url("/echo"), std::string(3'000'000, 'x'))->status, 413);
  EXPECT_EQ(request("GET", url("/echo?" + std::string(1000, 'x')))->status, 431);
  const std::string chunked = "PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_NE(raw(chunked + "ff\r\n").find(" 413 "), std::string::npos);
  for (const char* before : {"1;", "0\r\nName: "})
    EXPECT_NE(raw(chunked + before + std::string(100'000, 'x')).find(" 431 "), std::string::npos);
}

TEST_F(Http, MalformedRequestsAreRefused) {
  serve();
  for (const char* text :
       {"garbage\r\n\r\n", "GET /%zz HTTP/1.1\r\n\r\n", "GET * HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n", "\x16\x03\x01\x02\x05\x01\xfc\x03\x03\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"}) {
    EXPECT_EQ(raw(text).substr(0, 12), "HTTP/1.1 400") << text;
  }
  // Too short a body, or nothing at all: nobody to answer.
  EXPECT_EQ(raw("PUT /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nshort"), "");
  EXPECT_EQ(raw(""), "");
  // Too long a body: the rest is no request.
  const std::string text = raw("PUT /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nlong body\r\n\r\n");
  EXPECT_NE(text.find("PUT /echo l"), std::string::npos);
  EXPECT_NE(text.find("HTTP/1.1 400"), std::string::npos);
  EXPECT_EQ(request("GET", url("/echo"))->status, 200);
}

TEST_F(Http, UnknownTransferCodingsAreRefused) {
  serve();
  for (const char* coding : {"gzip", "identity", "gzip, chunked", "chunked, gzip", "",
                             "gzip\r\nTransfer-Encoding: chunked", "gzip\r\nContent-Length: 4"}) {
    // What follows the header must not be answered as a request of its own.
    const std::string text = raw("PUT /echo HTTP/1.1\r\nTransfer-Encoding: " + std::string(coding) +
                                 "\r\n\r\nGET /echo HTTP/1.1\r\n\r\n");
    EXPECT_EQ(text.substr(0, 12), "HTTP/1.1 501") << coding;
    EXPECT_EQ(text.find("HTTP/1.1", 1), std::string::npos) << text;
  }
  EXPECT_EQ(raw("PUT /echo HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n").substr(0, 12),
            "HTTP/1.1 200");
}

TEST_F(Http, WhoAsksMayGoOn) {
  serve({.max_body = 100});
  RawSocket socket(address);
  socket.send("PUT /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(socket.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.send("body");
  EXPECT_NE(socket.receive("body").find("HTTP/1.1 200"), std::string::npos);
  EXPECT_EQ(raw("PUT /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n")
                .substr(0, 12),
            "HTTP/1.1 413");
}

TEST_F(Http, SlowClientsAreCutOff) {
  serve({.idle_timeout = 50ms});
  for (const char* text :
       {"", "G", "GET / HTTP/1.1\r\nX", "PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"}) {
    RawSocket socket(address);
    socket.send(text);
    EXPECT_EQ(socket.receive(), "") << text;
    EXPECT_TRUE(socket.closed) << text;
  }
}

TEST_F(Http, ADripDoesNotKeepARequestAlive) {
  serve({.idle_timeout = 100ms});
  RawSocket socket(address);
  const timeval wait{.tv_sec = 0, .tv_usec = 20'000};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  socket.send("GET / HTTP/1.1\r\nX: ");
  const auto begin = std::chrono::steady_clock::now();
  while (!socket.closed && std::chrono::steady_clock::now() - begin < 20s) {
    socket.send("x");
    socket.receive();
  }
  EXPECT_TRUE(socket.closed);
}

// A request whose answer has come, on a connection that stays.
void ask(RawSocket& socket) {
  socket.send("GET /echo HTTP/1.1\r\n\r\n");
  EXPECT_NE(socket.receive("GET /echo").find(" 200 "), std::string::npos);
}

TEST_F(Http, IdleConnectionsMakeRoomForNewOnes) {
  serve({.max_connections = 2});
  RawSocket first(address), second(address);
  ask(first);
  ask(second);
  ask(first);  // now the second has waited for longer
  RawSocket third(address);
  ask(third);
  EXPECT_EQ(second.receive(), "");
  EXPECT_TRUE(second.closed);
  ask(first);
  ask(third);
}

TEST_F(Http, AShortageOfDescriptorsIsToldOnceAMinute) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "SKIPPED, NOT PROVEN HERE: checks of the sanitizer open pipes";
#endif
  serve();
  RawSocket first(address);
  ask(first);
  std::array<RawSocket, 5> late;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  testing::internal::CaptureStderr();
  for (RawSocket& socket : late) {
    const int next = ::dup(STDERR_FILENO);
    ASSERT_GE(next, 0);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    socket.connect(address);
    ask(first);  // is answered after the server has seen who waits
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ask(socket);
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("HTTP: accept: Too many open files"), std::string::npos) << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
}

TEST_F(Http, UnfinishedRequestsMakeRoomForNewOnes) {
  serve({.max_connections = 2});
  for (const char* begun : {"", "G", "GET / HTTP/1.1\r\nX"}) {
    RawSocket one(address), other(address);
    one.send(begun);
    other.send(begun);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(request("GET", url("/echo"))->status, 200) << begun;
    EXPECT_EQ(one.receive(), "") << begun;
    EXPECT_TRUE(one.closed) << begun;
  }
}

TEST_F(Http, ABodyThatArrivesGoesAfterTheIdle) {
  serve({.max_connections = 2});
  RawSocket first(address);
  first.send("PUT /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(first.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  RawSocket second(address), third(address);
  EXPECT_EQ(second.receive(), "");
  EXPECT_TRUE(second.closed);
  first.send("body");
  EXPECT_NE(first.receive("body").find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(Http, ABodyThatDoesNotArriveMakesRoom) {
  serve({.max_connections = 1});
  RawSocket first(address);
  first.send("PUT /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(first.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  RawSocket second(address);
  ask(second);
  EXPECT_EQ(first.receive(), "");
  EXPECT_TRUE(first.closed);
}

TEST_F(Http, WhoIsServedIsNotClosedForOthers) {
  os::Executor& executor = runtime->env().executor;
  os::Completion<bool> release(executor);
  std::promise<void> entered;
  server = HttpServer::create(runtime->env(), {.max_connections = 1}).value();
  server->route("GET", "/wait", [&](const HttpRequest&) { return answer_after(entered, release); });
  address = server->listen({"127.0.0.1", 0}).value();
  RawSocket first(address);
  first.send("GET /wait HTTP/1.1\r\n\r\n");
  entered.get_future().get();
  RawSocket second(address);
  EXPECT_NE(second.receive().find("HTTP/1.1 503"), std::string::npos);
  executor.post([&] { release.set(true); });
  EXPECT_NE(first.receive("\r\n\r\n").find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(Http, StopWaitsForHandlersAndClosesTheRest) {
  serve();
  os::Executor& executor = runtime->env().executor;
  os::Completion<bool> release(executor);
  std::promise<void> entered;
  auto other = HttpServer::create(runtime->env()).value();
  other->route("GET", "/wait", [&](const HttpRequest&) { return answer_after(entered, release); });
  const Address at = other->listen({"127.0.0.1", 0}).value();
  RawSocket idle(at), waiting(at);
  waiting.send("GET /wait HTTP/1.1\r\n\r\n");
  entered.get_future().get();
  auto stopped = std::async(std::launch::async, [&] { other->stop(); });
  EXPECT_EQ(idle.receive(), "");
  EXPECT_EQ(stopped.wait_for(0s), std::future_status::timeout);
  executor.post([&] { release.set(true); });
  stopped.get();
  EXPECT_NE(waiting.receive().find("HTTP/1.1 200"), std::string::npos);
  other->stop();
}

base::Task<std::string> next_piece(std::shared_ptr<int> left) {
  co_return *left == 0 ? std::string() : std::to_string((*left)--) + " ";
}

base::Task<HttpResponse> in_pieces(const HttpRequest& request) {
  HttpResponse response;
  response.body = request.query.contains("head") ? "head " : "";
  const auto left = std::make_shared<int>(request.query.contains("none") ? 0 : 3);
  response.more = [left] { return next_piece(left); };
  co_return response;
}

TEST_F(Http, LongAnswersGoOutInPieces) {
  server = HttpServer::create(runtime->env()).value();
  server->route("GET", "/pieces", in_pieces);
  address = server->listen({"127.0.0.1", 0}).value();
  EXPECT_EQ(request("GET", url("/pieces"))->body, "3 2 1 ");
  EXPECT_EQ(request("GET", url("/pieces?head=1"))->body, "head 3 2 1 ");
  EXPECT_EQ(request("GET", url("/pieces?none=1"))->body, "");
  // The connection goes on behind the last piece.
  const std::string two = raw("GET /pieces HTTP/1.1\r\n\r\nGET /pieces?none=1 HTTP/1.1\r\n\r\n");
  EXPECT_NE(two.find("Transfer-Encoding: chunked"), std::string::npos) << two;
  EXPECT_NE(two.find("2\r\n3 \r\n2\r\n2 \r\n2\r\n1 \r\n0\r\n\r\nHTTP/1.1 200"), std::string::npos);
  // Who knows no chunks gets them as they are, and the end of the connection.
  const std::string old = raw("GET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(old.ends_with("\r\n\r\n3 2 1 ")) << old;
  EXPECT_EQ(old.find("chunked"), std::string::npos);
}

base::Task<std::string> endless_piece() { co_return std::string(1 << 20, 'x'); }

// `alive` goes with the answer.
base::Task<HttpResponse> endless(std::shared_ptr<void> alive) {
  HttpResponse response;
  response.more = [alive] { return endless_piece(); };
  co_return response;
}

TEST_F(Http, APieceThatNobodyTakesEndsTheAnswer) {
  HttpLimits limits;
  limits.idle_timeout = 200ms;
  std::promise<void> over;
  server = HttpServer::create(runtime->env(), limits).value();
  server->route("GET", "/endless", [&over](const HttpRequest&) {
    return endless(std::shared_ptr<void>(nullptr, [&over](void*) { over.set_value(); }));
  });
  address = server->listen({"127.0.0.1", 0}).value();
  RawSocket reader(address);
  reader.send("GET /endless HTTP/1.1\r\n\r\n");
  EXPECT_NE(reader.receive("xxxx").find("200 OK"), std::string::npos);
  // It reads no more, and says nothing.
  EXPECT_EQ(over.get_future().wait_for(20s), std::future_status::ready);
}

TEST_F(Http, ASecretIsShownAsABearer) {
  const auto shown = [](std::string_view authorization) {
    HttpRequest request;
    request.authorization = authorization;
    return shows_secret(request, "swordfish");
  };
  EXPECT_TRUE(shown("Bearer swordfish"));
  EXPECT_TRUE(shown("bearer swordfish"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer swordfisj", "Bearer swordfish ",
                            "Basic swordfish", "swordfish"})
    EXPECT_FALSE(shown(wrong)) << wrong;
  const auto parsed =
      parse_http_request("GET / HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n", HttpLimits());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->authorization, "Bearer x");
}

base::Task<HttpResponse> no_content(const HttpRequest&) {
  HttpResponse response;
  response.status = 204;
  response.body = "dropped";
  co_return response;
}

TEST_F(Http, AStatusWithoutBodyHasNone) {
  server = HttpServer::create(runtime->env()).value();
  server->route("GET", "/", no_content);
  address = server->listen({"127.0.0.1", 0}).value();
  const auto answer = request("GET", url("/"));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(answer->body, "");
}

TEST_F(Http, ListenNamesWhatIsInTheWay) {
  serve();
  auto other = HttpServer::create(runtime->env()).value();
  const auto taken = other->listen(address);
  EXPECT_EQ(taken.error().code(), Code::kAddressInUse);
  EXPECT_NE(taken.error().message().find(to_string(address)), std::string::npos);
  EXPECT_TRUE(other->listen({"localhost", 0}));
}

TEST_F(Http, ClientErrorsNameTheUrl) {
  RawServer garbage("\x01\x02 no http\r\n\r\n"),
      gone("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), silent("", false),
      fine("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno");
  EXPECT_EQ(request("GET", garbage.url).error().code(), Code::kProtocolError);
  EXPECT_EQ(request("GET", gone.url).error().code(), Code::kConnectionLost);
  for (const char* before : {"1;", "0\r\nName: "}) {
    RawServer endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
                      (before + std::string(300'000, 'x')));
    EXPECT_EQ(request("GET", endless.url).error().code(), Code::kProtocolError);
  }
  const auto late = request("GET", silent.url, "", 50ms);
  EXPECT_EQ(late.error().code(), Code::kDeadlineExceeded);
  EXPECT_NE(late.error().message().find(silent.url), std::string::npos);
  EXPECT_EQ(request("PUT", fine.url, "{}")->status, 503);
  fine.join();
  EXPECT_NE(fine.request.find("PUT /x HTTP/1.1\r\n"), std::string::npos);
  EXPECT_NE(fine.request.find("Content-Type: application/json\r\n"), std::string::npos);

  serve();
  const std::string here = url("/echo");
  EXPECT_EQ(request("GET", "http://localhost:" + std::to_string(address.port) + "/echo")->status,
            200);
  server.reset();
  EXPECT_EQ(request("GET", here).error().code(), Code::kUnreachable);
  EXPECT_EQ(request("GET", here, "", 0s).error().code(), Code::kDeadlineExceeded);
  // No DNS server is asked for a label of more than 63 characters.
  EXPECT_EQ(request("GET", "http://" + std::string(64, 'a') + "/").error().code(),
            Code::kUnreachable);
  EXPECT_EQ(request("GET", "https://h/").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(request("G T", here).error().code(), Code::kInvalidArgument);
}

base::Task<void> cancel_soon(os::Executor& executor, os::CancelToken& cancel) {
  co_await executor.yield();
  cancel.cancel();
}

base::Task<Result<HttpResponse>> request_and_cancel(os::Env env, std::string url) {
  os::CancelToken cancel;
  base::TaskGroup group;
  group.start(cancel_soon(env.executor, cancel));
  Result<HttpResponse> response =
      co_await http_request(env, "GET", url, "", env.now() + 20s, base::Duration::max(), &cancel);
  co_await group.join();
  co_return response;
}

TEST_F(Http, ACancelEndsARequestWhereverItIs) {
  serve();
  RawServer silent("", false);
  // Connecting, or waiting for an answer; asking what a name means.
  for (const std::string& at : {silent.url, "http://localhost:" + std::to_string(address.port)}) {
    const auto cancelled =
        *os::run_blocking(runtime->env().executor, request_and_cancel(runtime->env(), at));
    EXPECT_EQ(cancelled.error().code(), Code::kCancelled) << at;
    EXPECT_NE(cancelled.error().message().find(at), std::string::npos);
  }
}

TEST_F(Http, OtherExecutorsAreRefused) {
  os::SimExecutor executor(1);
  os::Env env = runtime->env();
  const os::Env other{executor, env.random, env.network, env.disk};
  EXPECT_EQ(HttpServer::create(other).error().code(), Code::kNotSupported);
  const auto answer =
      executor.run(http_request(other, "GET", "http://h/", "", executor.now() + 1s));
  EXPECT_EQ(answer.error().code(), Code::kNotSupported);
}

}  // namespace
}  // namespace mooncake::net
