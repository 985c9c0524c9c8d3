#include "metastore/metastore.h"

#include "base/text.h"

namespace mooncake::metastore {

Result<std::unique_ptr<Metastore>> open_metastore(os::Env env, std::string_view url) {
  const std::size_t end = url.find("://");
  const std::string scheme =
      end == std::string_view::npos ? "" : base::to_lower(url.substr(0, end));
  std::string known;
  for (const MetastoreEntry& entry : builtin_metastores()) {
    if (entry.scheme == scheme) return entry.open(env, url);
    known += (known.empty() ? "" : ", ") + std::string(entry.scheme) + "://";
  }
  return fail(Code::kInvalidArgument,
              "metastore " + base::quote(url) + ": unknown scheme; known are " + known);
}

}  // namespace mooncake::metastore
