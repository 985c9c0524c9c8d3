#include "os/process_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace mooncake::os {

namespace {

// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst of Linux).
constexpr std::uint64_t kPresent = 1ull << 63;
constexpr std::uint64_t kShared = 1ull << 61;          // of a file, or of shared memory
constexpr std::uint64_t kWriteProtected = 1ull << 57;  // for a userfaultfd handler

// Pages between two ranges that are looked at with them: that is cheaper than to ask again.
constexpr std::uint64_t kBridge = 32;
constexpr std::uint64_t kScanBridge = 256;
// Of so many the entries are read at no more cost than another look takes.
constexpr std::uint64_t kFewPages = 8;
constexpr std::size_t kLongestMaps = 64u << 20;  // bytes of text that are looked at

// PAGEMAP_SCAN, of the same page; headers before Linux 6.7 lack it.
constexpr std::uint64_t kIsWritten = 1u << 1;  // not write-protected for a userfaultfd handler
constexpr std::uint64_t kIsFile = 1u << 2;
constexpr std::uint64_t kIsPresent = 1u << 3;
struct ScanRegion {
  std::uint64_t start, end, categories;
};
struct ScanArguments {
  std::uint64_t size = sizeof(ScanArguments), flags = 0;
  std::uint64_t start = 0, end = 0, walk_end = 0;
  std::uint64_t regions = 0, room = 0, max_pages = 0;
  std::uint64_t inverted = 0, all_of = 0, any_of = 0, told = 0;
};
constexpr unsigned long kScan = _IOWR('f', 16, ScanArguments);

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}
std::uint64_t first_page(const iovec& range) {
  return reinterpret_cast<std::uint64_t>(range.iov_base) / page_size();
}
std::uint64_t last_page(const iovec& range) {
  return (reinterpret_cast<std::uint64_t>(range.iov_base) + range.iov_len - 1) / page_size();
}

// Whether what a line of maps names lies in memory alone.
bool is_memory(std::string_view name) {
  constexpr std::array<std::string_view, 7> kMemory{
      "/memfd:",        "/dev/shm/",       "/dev/zero",  "/SYSV",
      "/anon_hugepage", "/dev/hugepages/", "[anon_shmem"};
  return name.empty() || std::ranges::any_of(kMemory, [name](std::string_view prefix) {
           return name.starts_with(prefix);
         });
}

}  // namespace

// Entries of pages one after the other.
class ProcessPages::Window {
 public:
  explicit Window(int pagemap) : pagemap_(pagemap) {}

  // False when they can't be read.
  bool load(std::uint64_t first, std::uint64_t count) {
    first_ = first;
    count_ = std::min<std::uint64_t>(count, entries_.size());
    const std::size_t size = count_ * sizeof(std::uint64_t);
    const auto offset = static_cast<off_t>(first * sizeof(std::uint64_t));
    return ::pread(pagemap_, entries_.data(), size, offset) == static_cast<ssize_t>(size);
  }
  bool has(std::uint64_t page) const { return page >= first_ && page - first_ < count_; }
  std::uint64_t entry(std::uint64_t page) const { return entries_[page - first_]; }

 private:
  const int pagemap_;
  std::uint64_t first_ = 0, count_ = 0;
  std::array<std::uint64_t, 512> entries_;
};

ProcessPages::ProcessPages(pid_t pid, UniqueFd pagemap, UniqueFd maps)
    : pid_(pid), pagemap_(std::move(pagemap)), maps_(std::move(maps)), start_(read_start()) {}

ProcessPages::ProcessPages(ProcessPages&& other) noexcept
    : pid_(other.pid_),
      pagemap_(std::move(other.pagemap_)),
      maps_(std::move(other.maps_)),
      start_(std::move(other.start_)) {}

Result<ProcessPages> ProcessPages::open(pid_t pid) {
  std::array<UniqueFd, 2> files;
  constexpr std::array kNames{"pagemap", "maps"};
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string path = fmt::format("/proc/{}/{}", pid, kNames[i]);
    files[i] = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!files[i]) {
      return fail(Code::kNotSupported, fmt::format("open {}: {}", path, std::strerror(errno)));
    }
  }
  return ProcessPages(pid, std::move(files[0]), std::move(files[1]));
}

// Of memory that is nobody's any more nothing is read.
bool ProcessPages::are_of_process() const {
  std::uint64_t entry = 0;
  return ::pread(pagemap_.get(), &entry, sizeof entry, 0) == sizeof entry;
}

bool ProcessPages::are_of_program() const { return !start_.empty() && read_start() == start_; }

std::string ProcessPages::read_start() const {
  const std::string path = fmt::format("/proc/{}/auxv", pid_);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> content;
  const ssize_t size = ::read(file.get(), content.data(), content.size());
  return size <= 0 ? std::string() : std::string(content.data(), static_cast<std::size_t>(size));
}

bool ProcessPages::are_there(std::span<const iovec> ranges, PageUse use) const {
  std::uint64_t pages = 0;
  for (const iovec& range : ranges)
    pages += range.iov_len == 0 ? 0 : last_page(range) - first_page(range) + 1;
  const bool scanned = pages > kFewPages && scan(ranges, use) && are_of_process();
  return scanned || look(ranges, use);
}

bool ProcessPages::may_be_file(std::uint64_t address, std::uint64_t length) const {
  return has_file({address, address + length});
}

bool ProcessPages::scan(std::span<const iovec> ranges, PageUse use) const {
  Range span;  // in pages
  for (const iovec& range : ranges) {
    if (range.iov_len == 0) continue;
    const Range pages{first_page(range), last_page(range) + 1};
    const bool joins =
        span.end != 0 && pages.begin >= span.begin && pages.begin <= span.end + kScanBridge;
    if (!joins) {
      if (span.end != 0 && !scan_span(span, use)) return false;
      span = pages;
    }
    span.end = std::max(span.end, pages.end);
  }
  return span.end == 0 || scan_span(span, use);
}

// Asks for the pages of which something is to be said: there are none in most memory.
bool ProcessPages::scan_span(const Range& span, PageUse use) const {
  const bool writes = use == PageUse::kWrite;
  const std::uint64_t needed = writes ? kIsPresent | kIsWritten : kIsPresent;
  std::array<ScanRegion, 8> found;
  ScanArguments arguments;
  arguments.start = span.begin * page_size();
  arguments.end = span.end * page_size();
  arguments.regions = reinterpret_cast<std::uint64_t>(found.data());
  arguments.room = found.size();
  arguments.inverted = needed;
  arguments.any_of = arguments.told = writes ? needed | kIsFile : needed;
  const int regions = ::ioctl(pagemap_.get(), kScan, &arguments);
  if (regions < 0 || regions == static_cast<int>(found.size())) return false;
  return std::all_of(found.begin(), found.begin() + regions, [&](const ScanRegion& region) {
    return (region.categories & needed) == needed && !has_file({region.start, region.end});
  });
}

bool ProcessPages::look(std::span<const iovec> ranges, PageUse use) const {
  Window window(pagemap_.get());
  const auto load = [&](std::size_t range, std::uint64_t page) {
    std::uint64_t last = last_page(ranges[range]);
    for (const iovec& next : ranges.subspan(range + 1)) {
      if (next.iov_len == 0) continue;
      if (first_page(next) < page || first_page(next) > last + kBridge) break;
      last = std::max(last, last_page(next));
    }
    return window.load(page, last - page + 1);
  };
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].iov_len == 0) continue;
    for (std::uint64_t page = first_page(ranges[i]); page <= last_page(ranges[i]); ++page) {
      if (!window.has(page) && !load(i, page)) return false;
      const std::uint64_t entry = window.entry(page);
      if ((entry & kPresent) == 0) return false;
      if (use == PageUse::kRead) continue;
      if ((entry & kWriteProtected) != 0) return false;
      const Range bytes{page * page_size(), (page + 1) * page_size()};
      if ((entry & kShared) != 0 && has_file(bytes)) return false;
    }
  }
  return true;
}

void ProcessPages::forget_mappings() {
  std::lock_guard lock(mutex_);
  files_known_ = false;
}

bool ProcessPages::has_file(const Range& range) const {
  std::lock_guard lock(mutex_);
  if (!files_known_) {
    auto files = read_files();
    files_readable_ = files.has_value();
    files_ = std::move(files).value_or(std::vector<Range>());
    files_known_ = true;
  }
  if (!files_readable_) return true;
  return std::ranges::any_of(files_, [&range](const Range& file) {
    return range.begin < file.end && file.begin < range.end;
  });
}

// Lines such as "7f00-7f10 rw-s 00000000 00:01 42   /memfd:x (deleted)".
std::optional<std::vector<ProcessPages::Range>> ProcessPages::read_files() const {
  std::string text;
  std::array<char, 1u << 16> piece;
  if (::lseek(maps_.get(), 0, SEEK_SET) != 0) return std::nullopt;
  for (;;) {
    const ssize_t size = ::read(maps_.get(), piece.data(), piece.size());
    if (size == 0) break;
    if (size < 0 || text.size() > kLongestMaps) return std::nullopt;
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
  std::vector<Range> files;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Range range;
    std::array<char, 5> rights{};
    int name = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %n", &range.begin,
                    &range.end, rights.data(), &name) < 3) {
      return std::nullopt;
    }
    const bool is_shared_writable = rights[1] == 'w' && rights[3] == 's';
    const std::string_view where = name == 0 ? "" : std::string_view(line).substr(name);
    if (is_shared_writable && !is_memory(where)) files.push_back(range);
  }
  return files;
}

}  // namespace mooncake::os
