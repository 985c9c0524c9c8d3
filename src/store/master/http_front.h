// The Master's HTTP face: /metrics and /health.
#pragma once

#include "net/http.h"
#include "store/master/server.h"

namespace mooncake::store::master {

// Both on one executor. The master must outlive the server's stop().
void add_master_routes(net::HttpServer& http, MasterServer& master);

}  // namespace mooncake::store::master
