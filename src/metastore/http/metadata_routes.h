// The metadata server: GET, PUT and DELETE of /metadata?key=..., with the published texts and
// codes.
#pragma once

#include <memory>

#include "base/metrics.h"
#include "metastore/metadata_map.h"
#include "net/http.h"

namespace mooncake::metastore {

// Before server.listen(). A key that contains "rpc_meta" says where a running engine is reached, so
// a second value for it is refused until the first is deleted; the same value again is fine.
void add_metadata_routes(net::HttpServer& server, std::shared_ptr<MetadataMap> map);

// The same with GET /health, and GET /metrics: keys and bytes there are, requests there were. The
// registry outlives the server, and is not exposed after the map has gone.
void add_metadata_service(net::HttpServer& server, std::shared_ptr<MetadataMap> map,
                          base::MetricsRegistry& metrics);

}  // namespace mooncake::metastore
