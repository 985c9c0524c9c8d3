// Metastore: where engines publish how to reach them. Values are opaque bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/task.h"
#include "mooncake/result.h"
#include "os/cancel.h"
#include "os/env.h"

namespace mooncake::metastore {

using base::Task;

// What a back end can do beyond get, put and remove.
struct MetastoreCapabilities {
  std::string_view name;
  bool shared = false;  // other processes see what is put
  bool compare_and_swap = false;
  bool watch = false;
  bool lease = false;
};

// Executor thread only. All calls end by their deadline.
class Metastore {
 public:
  virtual ~Metastore() = default;
  virtual const MetastoreCapabilities& capabilities() const = 0;
  // kObjectNotFound for a missing key; kMetadataError when the service fails; kCancelled soon after
  // a cancel.
  virtual Task<Result<std::string>> get(std::string key, base::TimePoint deadline,
                                        os::CancelToken* cancel = nullptr) = 0;
  virtual Task<Result<void>> put(std::string key, std::string value, base::TimePoint deadline) = 0;
  // kObjectNotFound for a missing key.
  virtual Task<Result<void>> remove(std::string key, base::TimePoint deadline) = 0;
};

// One row of the built-in table, which the build generates from the leaves it was given.
struct MetastoreEntry {
  std::string_view scheme;  // "http"; "memory" has no host
  Result<std::unique_ptr<Metastore>> (*open)(os::Env env, std::string_view url);
};

std::span<const MetastoreEntry> builtin_metastores();

// By scheme, e.g. "http://127.0.0.1:8080/metadata", "memory://name" (one map per name and process).
// An unknown scheme is kInvalidArgument and lists the known ones.
Result<std::unique_ptr<Metastore>> open_metastore(os::Env env, std::string_view url);

}  // namespace mooncake::metastore
