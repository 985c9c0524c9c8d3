#include "native/store_calls.h"

#include <algorithm>
#include <string>

#include "memory/extent_table.h"
#include "store/client/client.h"

namespace mooncake::python {

namespace {

std::string why_refused(const PutItem& item, const ReplicateConfig& config, std::size_t items) {
  const Result<void> planned = store::check_config(config, items);
  if (!planned) return std::string(planned.error().detail());
  if (item.key.empty()) return "the key is empty";
  if (item.key.size() > memory::kMaxKeyLength) {
    return fmt::format("a key has {} bytes, at most {} are allowed", item.key.size(),
                       memory::kMaxKeyLength);
  }
  const bool empty = std::ranges::all_of(item.parts, [](ConstBytes part) { return part.empty(); });
  return fmt::format("{}: {}", item.key, empty ? "the value is empty" : "refused by the Master");
}

}  // namespace

std::vector<std::int32_t> write_items(StoreSession& session, Write kind,
                                      std::span<const PutItem> items,
                                      const ReplicateConfig& config) {
  const bool put = kind == Write::kPut;
  auto codes =
      put ? session.store().put_batch(items, config) : session.store().upsert_batch(items, config);
  const auto refused = std::ranges::find(codes, kRefused);
  if (refused != codes.end()) {
    const PutItem& item = items[static_cast<std::size_t>(refused - codes.begin())];
    base::log_error("{}: {}", put ? "put" : "upsert", why_refused(item, config, items.size()));
  }
  return codes;
}

}  // namespace mooncake::python
