#include "metastore/http/metadata_routes.h"

#include <utility>

namespace mooncake::metastore {
namespace {

constexpr std::string_view kPath = "/metadata";

net::HttpResponse text(int status, std::string_view words) {
  net::HttpResponse response;
  response.status = status;
  response.content_type = "application/json; charset=utf-8";
  response.body = words;
  return response;
}

net::HttpResponse error_text(const Error& error) {
  switch (error.code()) {
    case Code::kObjectNotFound:
      return text(404, "metadata not found");
    case Code::kInvalidArgument:
      return text(400, error.message());
    default:
      return text(507, error.message());
  }
}

net::HttpResponse get(const MetadataMap& map, const std::string& key) {
  Result<std::string> value = map.get(key);
  if (!value) return error_text(value.error());
  net::HttpResponse response;
  response.content_type = "application/json";
  response.body = *std::move(value);
  return response;
}

net::HttpResponse put(MetadataMap& map, const std::string& key, const std::string& value) {
  if (value.size() > map.limits().max_value) return text(413, "metadata value is too large");
  if (key.find("rpc_meta") == std::string::npos) {
    const Result<void> put = map.put(key, value);
    return put ? text(200, "metadata updated") : error_text(put.error());
  }
  const Result<MetadataMap::Added> added = map.add(key, value);
  if (!added) return error_text(added.error());
  switch (*added) {
    case MetadataMap::Added::kNew:
      return text(200, "metadata updated");
    case MetadataMap::Added::kUnchanged:
      return text(200, "metadata unchanged");
    case MetadataMap::Added::kDiffers:
      break;
  }
  return text(400, "Duplicate rpc_meta key not allowed");
}

net::HttpResponse remove(MetadataMap& map, const std::string& key) {
  const Result<void> removed = map.remove(key);
  return removed ? text(200, "metadata deleted") : error_text(removed.error());
}

net::HttpResponse answer(MetadataMap& map, const net::HttpRequest& request) {
  const auto found = request.query.find("key");
  if (found == request.query.end() || found->second.empty()) {
    return text(400, "metadata key is required");
  }
  const std::string& key = found->second;
  if (request.method == "GET") return get(map, key);
  if (request.method == "PUT") return put(map, key, request.body);
  return remove(map, key);
}

// Answers of one method, counted when there are counters.
struct Answering {
  std::shared_ptr<MetadataMap> map;
  base::Counter* served = nullptr;
  base::Counter* refused = nullptr;  // by a limit, or malformed; not those that find nothing

  base::Task<net::HttpResponse> operator()(const net::HttpRequest& request) const {
    net::HttpResponse response = answer(*map, request);
    if (served) (response.status == 200 || response.status == 404 ? served : refused)->add();
    co_return response;
  }
};

constexpr const char* kMethods[] = {"GET", "PUT", "DELETE"};

base::Task<net::HttpResponse> health_page() {
  net::HttpResponse response;
  response.content_type = "application/json";
  response.body = "{\"status\":\"ok\"}\n";
  co_return response;
}

base::Task<net::HttpResponse> metrics_page(const base::MetricsRegistry* metrics) {
  net::HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics->expose();
  co_return response;
}

}  // namespace

void add_metadata_routes(net::HttpServer& server, std::shared_ptr<MetadataMap> map) {
  for (const char* method : kMethods)
    server.route(method, std::string(kPath), Answering{map});
}

void add_metadata_service(net::HttpServer& server, std::shared_ptr<MetadataMap> map,
                          base::MetricsRegistry& metrics) {
  metrics.gauge("mooncake_metadata_keys", "keys that have a value",
                [map] { return static_cast<double>(map->size()); });
  metrics.gauge("mooncake_metadata_bytes", "of all keys and values",
                [map] { return static_cast<double>(map->bytes()); });
  for (const char* method : kMethods) {
    const base::Labels labels = {{"method", method}};
    server.route(method, std::string(kPath),
                 Answering{map,
                           &metrics.counter("mooncake_metadata_requests_total",
                                            "answered, also with 404", labels),
                           &metrics.counter("mooncake_metadata_refused_total",
                                            "beyond a limit, or malformed", labels)});
  }
  server.route("GET", "/health", [](const net::HttpRequest&) { return health_page(); });
  server.route("GET", "/metrics",
               [&metrics](const net::HttpRequest&) { return metrics_page(&metrics); });
}

}  // namespace mooncake::metastore
