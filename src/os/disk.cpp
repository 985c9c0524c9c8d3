#include "os/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/random.h"

namespace mooncake::os {

namespace {

auto system_fault(std::string_view what, const std::string& path, int error,
                  Code code = Code::kSystemCall) {
  return fail(code, fmt::format("{} '{}': {}", what, path, std::generic_category().message(error)));
}

auto cannot_open(const std::string& path, int error) {
  return system_fault("open", path, error,
                      error == ENOENT ? Code::kObjectNotFound : Code::kSystemCall);
}

auto too_large(std::string_view what, const std::string& path) {
  return fail(Code::kInvalidArgument,
              fmt::format("{} '{}': more than {} bytes", what, path, Disk::kMaxFile));
}

// An open file; closed at the end.
class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // 0 or the error. After it the file is closed, whatever it says.
  int close() { return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno; }

 private:
  int fd_;
};

// 0 or the error.
int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written >= 0) {
      content.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Written and durable under `path`, which must not exist. 0 or the error.
int write_new_file(const std::string& path, std::string_view content) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) return errno;
  if (const int error = write_all(file.fd(), content)) return error;
  if (::fsync(file.fd()) != 0) return errno;
  return file.close();
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A rename is durable only when its directory is.
int sync_directory(const std::string& path) {
  const File directory(path, O_RDONLY | O_DIRECTORY);
  if (!directory.is_open()) return errno;
  return ::fsync(directory.fd()) == 0 ? 0 : errno;
}

class SystemDisk final : public Disk {
 public:
  Result<std::string> read(const std::string& path) override {
    // Without O_NONBLOCK the open of a pipe would wait for its writer.
    const File file(path, O_RDONLY | O_NONBLOCK);
    if (!file.is_open()) return cannot_open(path, errno);
    struct stat status;
    if (::fstat(file.fd(), &status) != 0) return system_fault("stat", path, errno);
    if (!S_ISREG(status.st_mode)) {
      return fail(Code::kSystemCall, fmt::format("read '{}': not a regular file", path));
    }
    std::string content;
    char chunk[16384];
    for (;;) {
      const ssize_t got = ::read(file.fd(), chunk, sizeof chunk);
      if (got == 0) return content;
      if (got > 0) {
        content.append(chunk, static_cast<std::size_t>(got));
        if (content.size() > kMaxFile) return too_large("read", path);
      } else if (errno != EINTR) {
        return system_fault("read", path, errno);
      }
    }
  }

  Result<void> write_atomically(const std::string& path, std::string_view content) override {
    if (content.size() > kMaxFile) return too_large("write", path);
    const std::string fresh = fmt::format("{}.{:016x}.tmp", path, base::secure_random());
    if (const int error = write_new_file(fresh, content)) {
      ::unlink(fresh.c_str());
      return system_fault("write", fresh, error);
    }
    if (::rename(fresh.c_str(), path.c_str()) != 0) {
      const int error = errno;
      ::unlink(fresh.c_str());
      return system_fault("rename to", path, error);
    }
    const std::string directory = directory_of(path);
    if (const int error = sync_directory(directory)) return system_fault("sync", directory, error);
    return {};
  }
};

}  // namespace

Disk& system_disk() {
  static SystemDisk disk;
  return disk;
}

Result<std::string> FakeDisk::read(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(path);
  if (found == files_.end()) return cannot_open(path, ENOENT);
  return found->second;
}

Result<void> FakeDisk::write_atomically(const std::string& path, std::string_view content) {
  const std::lock_guard lock(mutex_);
  const Fault fault = std::exchange(fault_, Fault::kNone);
  if (content.size() > kMaxFile) return too_large("write", path);
  if (fault == Fault::kBeforeReplace) return system_fault("write", path, EIO);
  files_[path] = content;
  if (fault == Fault::kAfterReplace) return system_fault("sync", path, EIO);
  return {};
}

void FakeDisk::fail_next_write(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
}

}  // namespace mooncake::os
