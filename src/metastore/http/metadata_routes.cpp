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
  if (value.size() > kMaxValue) return text(413, "metadata value is too large");
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

base::Task<net::HttpResponse> answer(std::shared_ptr<MetadataMap> map,
                                     const net::HttpRequest& request) {
  const auto found = request.query.find("key");
  if (found == request.query.end() || found->second.empty()) {
    co_return text(400, "metadata key is required");
  }
  const std::string& key = found->second;
  if (request.method == "GET") co_return get(*map, key);
  if (request.method == "PUT") co_return put(*map, key, request.body);
  co_return remove(*map, key);
}

}  // namespace

void add_metadata_routes(net::HttpServer& server, std::shared_ptr<MetadataMap> map) {
  for (const char* method : {"GET", "PUT", "DELETE"}) {
    server.route(method, std::string(kPath),
                 [map](const net::HttpRequest& request) { return answer(map, request); });
  }
}

}  // namespace mooncake::metastore
