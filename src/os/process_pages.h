// ProcessPages: whether pages of another process are in its memory. The kernel copies such pages at
// once; others it waits for, for as long as those who bring them take: a userfaultfd handler, the
// server of a file.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mooncake/result.h"
#include "os/local_socket.h"

namespace mooncake::os {

enum class PageUse : std::uint8_t { kRead, kWrite };

// Thread-safe.
class ProcessPages {
 public:
  // What is opened is the memory that the process has now: who the pid is, is the caller's to make
  // sure of afterwards. kNotSupported without /proc/PID/pagemap and maps, or the right to read
  // them.
  static Result<ProcessPages> open(pid_t pid);
  ProcessPages(ProcessPages&& other) noexcept;

  // Whether this is still the process's memory: a program that it has executed since has another.
  // Says so of another program, too, while somebody copies into the one before.
  bool are_of_process() const;
  // Whether it has executed nothing since, by what the kernel has told the program at its start.
  // Slower, and blind where address spaces are not laid out at random.
  bool are_of_program() const;

  // True when a copy out of (kRead) or into (kWrite) these ranges of the process waits for nobody:
  // all pages are there, none is write-protected for a userfaultfd handler, none that is written
  // belongs to a file. What is not mapped at all may count as there: a copy fails at once. The
  // process may take pages away at any moment, so that this says what its
  // memory is like, and is no defence against one that means harm.
  bool are_there(std::span<const iovec> ranges, PageUse use) const;

  // Whether some of it is a shared mapping of a file, or may be one. To write there can take its
  // server's time, and keep everybody else from the process's memory meanwhile.
  bool may_be_file(std::uint64_t address, std::uint64_t length) const;

  // The process may have other mappings by now.
  void forget_mappings();

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
  };
  class Window;
  // By one question to the kernel for many ranges. False means that they must be looked at one by
  // one, as kernels before Linux 6.7 let nobody ask so.
  bool scan(std::span<const iovec> ranges, PageUse use) const;
  bool scan_span(const Range& span, PageUse use) const;
  bool look(std::span<const iovec> ranges, PageUse use) const;
  ProcessPages(pid_t pid, UniqueFd pagemap, UniqueFd maps);
  std::string read_start() const;
  bool has_file(const Range& range) const;
  std::optional<std::vector<Range>> read_files() const;

  pid_t pid_ = 0;
  UniqueFd pagemap_, maps_;
  std::string start_;  // what the kernel told the program: /proc/PID/auxv
  mutable std::mutex mutex_;
  mutable bool files_known_ = false;  // guarded by mutex, as all below
  mutable bool files_readable_ = true;
  mutable std::vector<Range> files_;  // shared, writable mappings of files
};

}  // namespace mooncake::os
