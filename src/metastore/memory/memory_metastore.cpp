#include "metastore/memory/memory_metastore.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/text.h"

namespace mooncake::metastore {
namespace {

constexpr std::string_view kScheme = "memory://";

class MemoryMetastore final : public Metastore {
 public:
  MemoryMetastore(os::Env env, std::shared_ptr<MetadataMap> map)
      : env_(env), map_(std::move(map)) {}

  const MetastoreCapabilities& capabilities() const override {
    static constexpr MetastoreCapabilities kCapabilities{.name = "memory"};
    return kCapabilities;
  }
  Task<Result<std::string>> get(std::string key, base::TimePoint deadline,
                                os::CancelToken* cancel) override {
    MC_CO_CHECK(check(key, deadline));
    if (os::is_cancelled(cancel)) co_return fail(Code::kCancelled, key);
    co_return map_->get(key);
  }
  Task<Result<void>> put(std::string key, std::string value, base::TimePoint deadline) override {
    MC_CO_CHECK(check(key, deadline));
    co_return map_->put(key, std::move(value));
  }
  Task<Result<void>> remove(std::string key, base::TimePoint deadline) override {
    MC_CO_CHECK(check(key, deadline));
    co_return map_->remove(key);
  }

 private:
  Result<void> check(std::string_view key, base::TimePoint deadline) const {
    if (env_.now() < deadline) return check_key(key);
    return fail(Code::kDeadlineExceeded, "metadata key " + base::quote(key));
  }

  const os::Env env_;
  const std::shared_ptr<MetadataMap> map_;
};

Result<std::unique_ptr<Metastore>> open(os::Env env, std::string_view url) {
  const std::string_view name = url.substr(kScheme.size());
  if (name.empty()) {
    return fail(Code::kInvalidArgument,
                "metastore " + base::quote(url) + ": expected memory://name");
  }
  return make_memory_metastore(env, memory_metastore_map(name));
}

}  // namespace

std::unique_ptr<Metastore> make_memory_metastore(os::Env env, std::shared_ptr<MetadataMap> map) {
  return std::make_unique<MemoryMetastore>(env, std::move(map));
}

std::shared_ptr<MetadataMap> memory_metastore_map(std::string_view name) {
  // What a name means to a process is the one thing here that is the process's own.
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<MetadataMap>, std::less<>> maps;
  const std::lock_guard lock(mutex);
  std::erase_if(maps, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<MetadataMap>& known = maps[std::string(name)];
  std::shared_ptr<MetadataMap> map = known.lock();
  if (!map) {
    map = std::make_shared<MetadataMap>();
    known = map;
  }
  return map;
}

const MetastoreEntry& memory_metastore_entry() {
  static constexpr MetastoreEntry kEntry{.scheme = "memory", .open = open};
  return kEntry;
}

}  // namespace mooncake::metastore
