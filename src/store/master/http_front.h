// The Master's HTTP face: how it is, what it holds, and why a key missed.
#pragma once

#include <string>

#include "net/http.h"
#include "store/master/server.h"

namespace mooncake::store::master {

struct FrontOptions {
  std::string leader_address;  // host:port for clients
  // Of the cluster. When there is one, who asks about keys or changes anything must show it, as
  // "Authorization: Bearer SECRET"; how the Master and its segments are is told to whoever reaches
  // the port.
  std::string cluster_secret;
};

// All on one executor. The master must outlive the server's stop().
void add_master_routes(net::HttpServer& http, MasterServer& master, FrontOptions options);

}  // namespace mooncake::store::master
