// http://host:port/metadata: client of a metadata server (http/metadata_routes.h, or the published
// ones). One connection for each call.
#pragma once

#include "metastore/metastore.h"

namespace mooncake::metastore {

const MetastoreEntry& http_metastore_entry();

}  // namespace mooncake::metastore
