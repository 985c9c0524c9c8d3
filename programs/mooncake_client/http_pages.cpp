#include "http_pages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "mooncake/config.h"

namespace mooncake::client_program {

namespace {

constexpr int kUnavailable = 503;

base::Task<net::HttpResponse> page(net::HttpResponse response) { co_return response; }

net::HttpResponse health(Store& store) {
  const int code = store.health();
  const char* status = code == 0 ? "healthy" : code == 1 ? "not_initialized" : "master_unreachable";
  net::HttpResponse response;
  response.status = code == 0 ? 200 : kUnavailable;
  response.content_type = "application/json";
  response.body = nlohmann::json{{"status", status}, {"code", code}}.dump() + "\n";
  return response;
}

net::HttpResponse metrics_or_none(std::string text) {
  net::HttpResponse response;
  response.status = text.empty() ? kUnavailable : 200;
  response.body = text.empty() ? "metrics not available\n" : std::move(text);
  return response;
}

// Of the sample without labels that is called `name`; "0" when there is none.
std::string value_of(const std::string& metrics, std::string_view name) {
  const std::string line = fmt::format("\n{} ", name);
  const std::size_t at = metrics.find(line);
  if (at == std::string::npos) return "0";
  const std::size_t begin = at + line.size();
  return metrics.substr(begin, metrics.find('\n', begin) - begin);
}

}  // namespace

std::string summary_of(const std::string& metrics) {
  if (metrics.empty()) return "";
  const auto value = [&](const char* name) { return value_of(metrics, name); };
  return fmt::format(
      "Put: {} objects, {} bytes, {} failed | Get: {} hits, {} bytes, {} misses | "
      "Mounts: {}\n",
      value("mooncake_client_put_stored_total"), value("mooncake_transfer_write_bytes"),
      value("mooncake_client_put_failures_total"), value("mooncake_client_get_hits_total"),
      value("mooncake_transfer_read_bytes"), value("mooncake_client_get_misses_total"),
      value("mooncake_client_mounts_total"));
}

void add_client_pages(net::HttpServer& http, Store& store) {
  Store* asked = &store;
  http.route("GET", "/health", [asked](const net::HttpRequest&) { return page(health(*asked)); });
  http.route("GET", "/metrics", [asked](const net::HttpRequest&) {
    net::HttpResponse response = metrics_or_none(asked->metrics());
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return page(std::move(response));
  });
  http.route("GET", "/metrics/summary", [asked](const net::HttpRequest&) {
    return page(metrics_or_none(summary_of(asked->metrics())));
  });
}

}  // namespace mooncake::client_program
