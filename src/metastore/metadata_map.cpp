#include "metastore/metadata_map.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace mooncake::metastore {
namespace {

tl::unexpected<Error> not_found(std::string_view key) {
  return fail(Code::kObjectNotFound, "metadata key " + base::quote(key));
}

}  // namespace

Result<void> check_key(std::string_view key) {
  if (key.empty()) return fail(Code::kInvalidArgument, "a metadata key must not be empty");
  if (key.size() <= kMaxKey) return {};
  return fail(Code::kInvalidArgument, "metadata key " + base::quote(key) + " has " +
                                          std::to_string(key.size()) + " bytes, at most " +
                                          std::to_string(kMaxKey) + " are allowed");
}

Result<void> check_value(std::string_view key, std::string_view value, std::size_t limit) {
  limit = std::min(limit, kMaxValue);
  if (value.size() <= limit) return {};
  return fail(Code::kInvalidArgument, "metadata key " + base::quote(key) + ": value of " +
                                          std::to_string(value.size()) + " bytes, at most " +
                                          std::to_string(limit) + " are allowed");
}

Result<std::string> MetadataMap::get(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return not_found(key);
  return found->second;
}

Result<void> MetadataMap::put(std::string_view key, std::string value) {
  const std::lock_guard lock(mutex_);
  return put_locked(key, std::move(value));
}

Result<MetadataMap::Added> MetadataMap::add(std::string_view key, std::string value) {
  const std::lock_guard lock(mutex_);
  if (const auto found = values_.find(key); found != values_.end()) {
    return found->second == value ? Added::kUnchanged : Added::kDiffers;
  }
  MC_CHECK(put_locked(key, std::move(value)));
  return Added::kNew;
}

Result<void> MetadataMap::put_locked(std::string_view key, std::string value) {
  MC_CHECK(check_key(key));
  MC_CHECK(check_value(key, value, limits_.max_value));
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t before = is_new ? 0 : key.size() + found->second.size();
  const std::size_t bytes = bytes_ - before + key.size() + value.size();
  if (bytes > limits_.max_bytes || (is_new && values_.size() >= limits_.max_keys)) {
    return fail(Code::kMetadataError, "metadata key " + base::quote(key) + ": no room beside " +
                                          std::to_string(values_.size()) + " keys of " +
                                          std::to_string(bytes_) + " bytes");
  }
  if (is_new) {
    values_.emplace(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
  bytes_ = bytes;
  return {};
}

Result<void> MetadataMap::remove(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return not_found(key);
  bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return {};
}

std::size_t MetadataMap::size() const {
  const std::lock_guard lock(mutex_);
  return values_.size();
}

std::size_t MetadataMap::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace mooncake::metastore
