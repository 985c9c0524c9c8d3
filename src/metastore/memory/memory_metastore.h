// memory://name: a map inside this process, shared by all who open the same name.
#pragma once

#include <memory>

#include "metastore/metadata_map.h"
#include "metastore/metastore.h"

namespace mooncake::metastore {

// Over a map that is also used otherwise, e.g. by a metadata server in the same process.
std::unique_ptr<Metastore> make_memory_metastore(os::Env env, std::shared_ptr<MetadataMap> map);

// The map called `name`. It lives as long as someone holds it. Any thread.
std::shared_ptr<MetadataMap> memory_metastore_map(std::string_view name);

const MetastoreEntry& memory_metastore_entry();

}  // namespace mooncake::metastore
