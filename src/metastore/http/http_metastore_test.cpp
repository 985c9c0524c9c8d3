// The HTTP metastore against servers that fail: each failure has its code, names the key or the
// URL, and ends in time.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "metastore/metastore.h"
#include "net/http.h"
#include "net/runtime.h"
#include "os/run_blocking.h"
#include "os/sim_executor.h"

namespace mooncake::metastore {
namespace {

using namespace std::chrono_literals;

base::Task<net::HttpResponse> answer_with(int status) {
  net::HttpResponse response;
  response.status = status;
  response.body = "words";
  co_return response;
}

struct HttpMetastore : testing::Test {
  // A server that answers everything with one status.
  std::unique_ptr<Metastore> serve(int status) {
    server = net::HttpServer::create(runtime->env()).value();
    for (const char* method : {"GET", "PUT", "DELETE"}) {
      server->route(method, "/m",
                    [status](const net::HttpRequest&) { return answer_with(status); });
    }
    return open("http://" + to_string(server->listen({"127.0.0.1", 0}).value()) + "/m?v=1");
  }
  std::unique_ptr<Metastore> open(const std::string& url) {
    return open_metastore(runtime->env(), url).value();
  }
  base::TimePoint deadline(base::Duration within = 20s) { return runtime->env().now() + within; }
  template <typename T>
  T run(Task<T> task) {
    return *os::run_blocking(runtime->env().executor, std::move(task));
  }

  std::unique_ptr<net::Runtime> runtime = net::Runtime::start("http_metastore").value();
  std::unique_ptr<net::HttpServer> server;
};

TEST_F(HttpMetastore, OnlyStatus200IsSuccess) {
  auto store = serve(200);
  EXPECT_EQ(run(store->get("k", deadline())).value(), "words");
  EXPECT_TRUE(run(store->put("k", "v", deadline())));
  for (int status : {201, 204, 301, 500}) {
    store = serve(status);
    const auto put = run(store->put("some key", "v", deadline()));
    EXPECT_EQ(put.error().code(), Code::kMetadataError) << status;
    EXPECT_NE(put.error().message().find("'some key'"), std::string::npos);
    EXPECT_NE(put.error().message().find(std::to_string(status)), std::string::npos);
    EXPECT_EQ(run(store->get("k", deadline())).error().code(), Code::kMetadataError);
  }
  for (int status : {400, 413}) {
    store = serve(status);
    EXPECT_EQ(run(store->put("k", "v", deadline())).error().code(), Code::kInvalidArgument);
  }
}

TEST_F(HttpMetastore, NotFoundIsForReadersAndRemovers) {
  auto store = serve(404);
  EXPECT_EQ(run(store->get("k", deadline())).error().code(), Code::kObjectNotFound);
  EXPECT_EQ(run(store->remove("k", deadline())).error().code(), Code::kObjectNotFound);
  EXPECT_EQ(run(store->put("k", "v", deadline())).error().code(), Code::kMetadataError);
}

TEST_F(HttpMetastore, AServerThatIsGoneIsNamed) {
  auto store = serve(200);
  server.reset();
  const auto got = run(store->get("k", deadline()));
  EXPECT_EQ(got.error().code(), Code::kMetadataError);
  EXPECT_NE(got.error().message().find("http://127.0.0.1:"), std::string::npos);
}

TEST_F(HttpMetastore, ASilentServerCostsNoMoreThanTheDeadline) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(fd, 8), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  auto store = open("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/m");
  EXPECT_EQ(run(store->get("k", deadline(50ms))).error().code(), Code::kDeadlineExceeded);
  // With time to spare, three seconds are the end: then it is the service that failed.
  EXPECT_EQ(run(store->get("k", deadline(1h))).error().code(), Code::kMetadataError);
  ::close(fd);
}

TEST_F(HttpMetastore, ASimulatedExecutorIsRefused) {
  os::SimExecutor executor(1);
  os::Env env = runtime->env();
  auto store = open_metastore({executor, env.random, env.network, env.disk}, "http://h/m").value();
  EXPECT_EQ(executor.run(store->get("k", executor.now() + 1s)).error().code(), Code::kNotSupported);
}

}  // namespace
}  // namespace mooncake::metastore
