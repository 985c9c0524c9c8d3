// MetadataMap: keys and opaque values in memory, bounded. Under the memory metastore and the
// metadata server.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "mooncake/result.h"

namespace mooncake::metastore {

// Limits of every back end.
inline constexpr std::size_t kMaxKey = 2048;
inline constexpr std::size_t kMaxValue = 1u << 20;
// kInvalidArgument: an empty or too long key; a value that is too large.
Result<void> check_key(std::string_view key);
Result<void> check_value(std::string_view key, std::string_view value,
                         std::size_t limit = kMaxValue);

// Thread-safe.
class MetadataMap {
 public:
  struct Limits {
    std::size_t max_keys = 1u << 20;
    std::size_t max_bytes = 1u << 30;   // of keys and values
    std::size_t max_value = kMaxValue;  // of one; never more than kMaxValue
  };
  MetadataMap() = default;
  explicit MetadataMap(Limits limits) : limits_(limits) {}

  // kObjectNotFound names the key, here and in remove().
  Result<std::string> get(std::string_view key) const;
  // kInvalidArgument as above, or beyond max_value; kMetadataError when the map is full.
  Result<void> put(std::string_view key, std::string value);
  Result<void> remove(std::string_view key);

  enum class Added { kNew, kUnchanged, kDiffers };
  // Puts the value unless the key has one.
  Result<Added> add(std::string_view key, std::string value);

  std::size_t size() const;
  std::size_t bytes() const;  // of keys and values
  const Limits& limits() const { return limits_; }

 private:
  Result<void> put_locked(std::string_view key, std::string value);

  const Limits limits_;
  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, std::string, std::less<>> values_;
  std::size_t bytes_ = 0;
};

}  // namespace mooncake::metastore
