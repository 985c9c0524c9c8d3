#include "store/master/http_front.h"

#include <nlohmann/json.hpp>

namespace mooncake::store::master {

namespace {

Task<net::HttpResponse> metrics_page(MasterServer* master) {
  net::HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = master->metrics().expose();
  co_return response;
}

Task<net::HttpResponse> health_page(MasterServer* master) {
  const nlohmann::json health = {
      {"status", "ok"},
      {"role", "leader"},
      {"ha_state", "serving"},
      {"service_ready", true},
      {"view_version", static_cast<std::uint32_t>(master->core().epoch())},
  };
  net::HttpResponse response;
  response.content_type = "application/json";
  response.body = health.dump() + "\n";
  co_return response;
}

}  // namespace

void add_master_routes(net::HttpServer& http, MasterServer& master) {
  MasterServer* served = &master;
  http.route("GET", "/metrics", [served](const net::HttpRequest&) { return metrics_page(served); });
  http.route("GET", "/health", [served](const net::HttpRequest&) { return health_page(served); });
}

}  // namespace mooncake::store::master
