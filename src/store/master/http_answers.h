// What the routes of the Master's HTTP face share: the published forms of answers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.h"
#include "store/master/http_front.h"

namespace mooncake::store::master {

// Where the routes get what they say; lives as long as they do.
struct Front {
  MasterServer* master;
  FrontOptions options;
};

net::HttpResponse json_page(std::string text, int status = 200);
net::HttpResponse text_page(std::string text, int status = 200);
// {"success": false, "error_code", "error_message"} under the status that goes with the code, which
// is one of the Store surface.
net::HttpResponse refusal(int store_code, std::string_view message);

// The answer to who does not show the cluster's secret, when it has one.
std::optional<net::HttpResponse> refuse_strangers(const Front& front,
                                                  const net::HttpRequest& request);

// The query's field, or "".
std::string field(const net::HttpRequest& request, const char* name);

// Keys and segments (http_queries.cpp).
void add_query_routes(net::HttpServer& http, const std::shared_ptr<Front>& front);

}  // namespace mooncake::store::master
