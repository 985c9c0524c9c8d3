// The metadata server's texts and codes, exactly as they are published.
#include <gtest/gtest.h>

#include <string>

#include "metastore/http/metadata_routes.h"
#include "net/runtime.h"
#include "os/run_blocking.h"

namespace mooncake::metastore {
namespace {

struct MetadataRoutes : testing::Test {
  MetadataRoutes() {
    add_metadata_routes(*server, map);
    url = "http://" + to_string(server->listen({"127.0.0.1", 0}).value());
  }
  net::HttpResponse call(std::string method, std::string target, std::string body = "") {
    os::Env env = runtime->env();
    return os::run_blocking(env.executor,
                            net::http_request(env, std::move(method), url + target, std::move(body),
                                              env.now() + std::chrono::seconds(20)))
        ->value();
  }
  void expect(const net::HttpResponse& response, int status, std::string_view body) {
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.body, body);
    EXPECT_EQ(response.content_type, "application/json; charset=utf-8");
  }

  std::unique_ptr<net::Runtime> runtime = net::Runtime::start("routes").value();
  std::shared_ptr<MetadataMap> map =
      std::make_shared<MetadataMap>(MetadataMap::Limits{.max_keys = 3, .max_bytes = 3u << 20});
  std::unique_ptr<net::HttpServer> server = net::HttpServer::create(runtime->env()).value();
  std::string url;
};

TEST_F(MetadataRoutes, PutGetDelete) {
  const std::string target = "/metadata?key=mooncake%2Fram%2Fa%3A1";
  expect(call("GET", target), 404, "metadata not found");
  expect(call("DELETE", target), 404, "metadata not found");
  expect(call("PUT", target, "{}"), 200, "metadata updated");
  expect(call("PUT", target, "{\"a\":1}"), 200, "metadata updated");
  const net::HttpResponse value = call("GET", target);
  EXPECT_EQ(value.status, 200);
  EXPECT_EQ(value.body, "{\"a\":1}");
  EXPECT_EQ(value.content_type, "application/json");
  EXPECT_EQ(map->get("mooncake/ram/a:1").value(), "{\"a\":1}");
  expect(call("DELETE", target), 200, "metadata deleted");
  expect(call("PUT", target, ""), 200, "metadata updated");
  EXPECT_EQ(call("GET", target).status, 200);
}

TEST_F(MetadataRoutes, AnEmptyKeyIsRefused) {
  for (const char* method : {"GET", "PUT", "DELETE"}) {
    for (const char* target : {"/metadata", "/metadata?key=", "/metadata?other=1"}) {
      expect(call(method, target), 400, "metadata key is required");
    }
  }
}

TEST_F(MetadataRoutes, ASecondRpcMetaIsRefused) {
  const std::string target = "/metadata?key=mooncake%2Frpc_meta%2Fnode";
  expect(call("PUT", target, "1"), 200, "metadata updated");
  expect(call("PUT", target, "1"), 200, "metadata unchanged");
  expect(call("PUT", target, "2"), 400, "Duplicate rpc_meta key not allowed");
  EXPECT_EQ(call("GET", target).body, "1");
  expect(call("DELETE", target), 200, "metadata deleted");
  expect(call("PUT", target, "2"), 200, "metadata updated");
}

TEST_F(MetadataRoutes, OtherMethodsAndPaths) {
  for (const char* method : {"HEAD", "POST", "PATCH"}) {
    EXPECT_EQ(call(method, "/metadata?key=a").status, 405) << method;
  }
  EXPECT_EQ(call("GET", "/other?key=a").status, 404);
  EXPECT_EQ(call("GET", "/metadata/?key=a").status, 404);
}

TEST_F(MetadataRoutes, LimitsAreKept) {
  EXPECT_EQ(call("PUT", "/metadata?key=a", std::string(kMaxValue, 'x')).status, 200);
  EXPECT_EQ(call("PUT", "/metadata?key=a", std::string(kMaxValue + 1, 'x')).status, 413);
  EXPECT_EQ(call("PUT", "/metadata?key=" + std::string(kMaxKey + 1, 'k'), "v").status, 400);
  EXPECT_EQ(call("PUT", "/metadata?key=b", "v").status, 200);
  EXPECT_EQ(call("PUT", "/metadata?key=c", "v").status, 200);
  EXPECT_EQ(call("PUT", "/metadata?key=d", "v").status, 507);
}

TEST_F(MetadataRoutes, AServiceSaysHowItIs) {
  base::MetricsRegistry metrics;
  auto own = std::make_shared<MetadataMap>(MetadataMap::Limits{.max_value = 10});
  const auto service = net::HttpServer::create(runtime->env()).value();
  add_metadata_service(*service, own, metrics);
  url = "http://" + to_string(service->listen({"127.0.0.1", 0}).value());
  EXPECT_EQ(call("GET", "/health").body, "{\"status\":\"ok\"}\n");
  expect(call("PUT", "/metadata?key=ab", "12345678"), 200, "metadata updated");
  expect(call("PUT", "/metadata?key=ab", "12345678901"), 413, "metadata value is too large");
  expect(call("GET", "/metadata?key=b"), 404, "metadata not found");
  const std::string page = call("GET", "/metrics").body;
  for (const char* line : {"mooncake_metadata_keys 1\n", "mooncake_metadata_bytes 10\n",
                           "mooncake_metadata_requests_total{method=\"GET\"} 1\n",
                           "mooncake_metadata_requests_total{method=\"PUT\"} 1\n",
                           "mooncake_metadata_refused_total{method=\"PUT\"} 1\n",
                           "mooncake_metadata_refused_total{method=\"DELETE\"} 0\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
  }
  service->stop();
}

}  // namespace
}  // namespace mooncake::metastore
