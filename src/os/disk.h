// Disk: the few file operations that control logic needs, so that tests can crash between them.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "mooncake/result.h"

namespace mooncake::os {

// Thread-safe. Small files only; bulk data has its own paths.
class Disk {
 public:
  static constexpr std::size_t kMaxFile = std::size_t{64} << 20;

  virtual ~Disk() = default;
  // kObjectNotFound when there is no such file. At most kMaxFile bytes.
  virtual Result<std::string> read(const std::string& path) = 0;
  // Replaces the file as a whole: after a crash it holds the old or the new content. Durable on
  // return.
  virtual Result<void> write_atomically(const std::string& path, std::string_view content) = 0;
};

// Files of this machine. A crash in the middle of a write may leave "<path>.<random>.tmp" beside
// the file.
Disk& system_disk();

// In memory. A crash forgets what was not yet durable; faults are armed by tests.
class FakeDisk final : public Disk {
 public:
  Result<std::string> read(const std::string& path) override;
  Result<void> write_atomically(const std::string& path, std::string_view content) override;

  // The next write fails: before the replacement (the old content stays) or after it (the new
  // content is there, but the caller saw an error).
  enum class Fault { kNone, kBeforeReplace, kAfterReplace };
  void fail_next_write(Fault fault);

 private:
  std::mutex mutex_;  // guards all below
  std::map<std::string, std::string> files_;
  Fault fault_ = Fault::kNone;
};

}  // namespace mooncake::os
