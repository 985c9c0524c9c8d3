#include "store/master/http_front.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "store/master/http_answers.h"

namespace mooncake::store::master {

namespace {

using nlohmann::json;

// Numbers of the Store surface that no code of ours has.
constexpr int kWrongMode = -1011;  // a switch is off that this needs
constexpr int kNotServed = -1012;

constexpr int kUnauthorized = 401;

int status_of(int store_code) {
  switch (store_code) {
    case -600:
      return 400;
    case -1402:
    case -101:
    case -704:
    case -1701:
      return 404;
    case kWrongMode:
    case -1010:
    case -1702:
      return 409;
    default:
      return 500;
  }
}

Task<net::HttpResponse> metrics_page(std::shared_ptr<Front> front) {
  net::HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = front->master->metrics().expose();
  co_return response;
}

std::uint32_t view_version(const Front& front) {
  return static_cast<std::uint32_t>(front.master->core().epoch());
}

Task<net::HttpResponse> health_page(std::shared_ptr<Front> front) {
  const json health = {{"status", "ok"},
                       {"role", "leader"},
                       {"ha_state", "serving"},
                       {"service_ready", true},
                       {"leader_address", front->options.leader_address},
                       {"view_version", view_version(*front)}};
  co_return json_page(health.dump());
}

Task<net::HttpResponse> leader_page(std::shared_ptr<Front> front) {
  const json leader = {{"present", true},
                       {"leader_address", front->options.leader_address},
                       {"view_version", view_version(*front)}};
  co_return json_page(leader.dump());
}

Task<net::HttpResponse> fixed_page(net::HttpResponse response) { co_return response; }

Task<net::HttpResponse> summary_page(std::shared_ptr<Front> front) {
  co_return text_page(front->master->summary() + "\n");
}

Result<bool> read_force(const std::string& text) {
  const std::string word = base::to_lower(text);
  if (word.empty() || word == "false" || word == "0") return false;
  if (word == "true" || word == "1") return true;
  return fail(Code::kInvalidArgument,
              fmt::format("force: {} is neither true nor false", base::quote(text)));
}

Task<net::HttpResponse> remove_all(std::shared_ptr<Front> front, std::string force_text,
                                   std::string tenant) {
  if (!tenant.empty() && tenant != "default") {
    co_return refusal(kWrongMode, "tenant_id: this Master has no tenants");
  }
  const Result<bool> force = read_force(force_text);
  if (!force) co_return refusal(force.error().store_code(), force.error().message());
  const Result<std::uint64_t> removed = co_await front->master->remove_matching("", *force);
  if (!removed) co_return refusal(removed.error().store_code(), removed.error().message());
  co_return json_page(json{{"success", true}, {"removed_count", *removed}}.dump());
}

void add_changing_routes(net::HttpServer& http, const std::shared_ptr<Front>& front) {
  http.route("POST", "/api/v1/remove_all", [front](const net::HttpRequest& request) {
    if (auto refused = refuse_strangers(*front, request)) return fixed_page(*std::move(refused));
    return remove_all(front, field(request, "force"), field(request, "tenant_id"));
  });
}

// Published routes of what is not built.
void add_refused_routes(net::HttpServer& http) {
  const auto refuse = [&http](const char* method, const char* path, int code, const char* message) {
    const net::HttpResponse response = refusal(code, message);
    http.route(method, path, [response](const net::HttpRequest&) { return fixed_page(response); });
  };
  for (const char* method : {"GET", "PUT", "DELETE"})
    refuse(method, "/api/v1/tenant_quotas", kWrongMode, "this Master has no tenants");
  constexpr const char* kNoDrain = "drain jobs are not served";
  refuse("POST", "/api/v1/drain_jobs", kNotServed, kNoDrain);
  refuse("GET", "/api/v1/drain_jobs/query", kNotServed, kNoDrain);
  refuse("POST", "/api/v1/drain_jobs/cancel", kNotServed, kNoDrain);
  const json events = {{"enabled", false},
                       {"published_batches", 0},
                       {"published_events", 0},
                       {"dropped_events", 0},
                       {"skipped_unparsed_keys", 0}};
  http.route("GET", "/kv_events/status", [text = events.dump()](const net::HttpRequest&) {
    return fixed_page(json_page(text));
  });
}

}  // namespace

net::HttpResponse json_page(std::string text, int status) {
  net::HttpResponse response;
  response.status = status;
  response.content_type = "application/json";
  response.body = std::move(text) + "\n";
  return response;
}

net::HttpResponse text_page(std::string text, int status) {
  net::HttpResponse response;
  response.status = status;
  response.body = std::move(text);
  return response;
}

net::HttpResponse refusal(int store_code, std::string_view message) {
  const json body = {
      {"success", false}, {"error_code", store_code}, {"error_message", base::to_utf8(message)}};
  return json_page(body.dump(), status_of(store_code));
}

std::optional<net::HttpResponse> refuse_strangers(const Front& front,
                                                  const net::HttpRequest& request) {
  const std::string& secret = front.options.cluster_secret;
  if (secret.empty() || net::shows_secret(request, secret)) return std::nullopt;
  net::HttpResponse refused =
      refusal(code_info(Code::kAuthenticationFailed).store,
              "the cluster has a secret: send it as 'Authorization: Bearer SECRET'");
  refused.status = kUnauthorized;
  return refused;
}

std::string field(const net::HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? std::string() : found->second;
}

void add_master_routes(net::HttpServer& http, MasterServer& master, FrontOptions options) {
  const auto front = std::make_shared<Front>(Front{&master, std::move(options)});
  const auto page = [&http, &front](const char* path, auto handler) {
    http.route("GET", path, [front, handler](const net::HttpRequest&) { return handler(front); });
  };
  page("/metrics", metrics_page);
  page("/metrics/summary", summary_page);
  page("/health", health_page);
  page("/leader", leader_page);
  http.route("GET", "/role",
             [](const net::HttpRequest&) { return fixed_page(text_page("leader\n")); });
  http.route("GET", "/ha_status",
             [](const net::HttpRequest&) { return fixed_page(text_page("serving\n")); });
  add_query_routes(http, front);
  add_changing_routes(http, front);
  add_refused_routes(http);
}

}  // namespace mooncake::store::master
