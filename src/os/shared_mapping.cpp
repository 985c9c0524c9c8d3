#include "os/shared_mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace mooncake::os {

namespace {

constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kSmallPage = 4096;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14

#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x0010;  // Linux 5.1; newer than some C libraries' headers
#endif

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

tl::unexpected<Error> system_error(std::string_view what, std::uint64_t size) {
  return fail(Code::kSystemCall, fmt::format("{} for {} bytes of shared memory: {}", what, size,
                                             std::strerror(errno)));
}

std::byte* map_fd(int fd, std::uint64_t size, int protection) {
  std::byte* const at = reserve_address_space(size);
  if (at == nullptr) return nullptr;
  if (::mmap(at, size, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
      ::madvise(at, size, MADV_DONTFORK) != 0) {
    const int error = errno;
    ::munmap(at, size);
    errno = error;
    return nullptr;
  }
  return at;
}

}  // namespace

std::byte* reserve_address_space(std::uint64_t size) {
  void* const all = ::mmap(nullptr, size + kHugePage, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(all);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uint64_t head = round_up(address, kHugePage) - address;
  if (head != 0) ::munmap(begin, head);
  const std::uint64_t tail = kHugePage - head;
  if (tail != 0) ::munmap(begin + head + round_up(size, kSmallPage), tail);
  return begin + head;
}

Mapping::Mapping(std::byte* data, std::uint64_t size, int fd)
    : data_(data), size_(size), fd_(fd), process_(::getpid()) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(process_, other.process_);
  return *this;
}

Mapping::~Mapping() {
  // In a forked child the range isn't ours: the mapping was left out, and something else may be
  // there.
  if (data_ != nullptr && ::getpid() == process_) ::munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

Result<OwnedMapping> OwnedMapping::create(const std::string& name, std::uint64_t size,
                                          PeersMay peers, unsigned flags) {
  size = round_up(size, kSmallPage);
  const int fd = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  if (fd < 0) return system_error("memfd_create", size);
  std::byte* data = nullptr;
  // The last seal closes the list; FUTURE_WRITE has to come after our own mapping.
  const int last = peers == PeersMay::kOnlyRead ? F_SEAL_FUTURE_WRITE | F_SEAL_SEAL : F_SEAL_SEAL;
  const char* failed = nullptr;
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) {
    failed = "ftruncate";
  } else if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    failed = "sealing";
  } else if ((data = map_fd(fd, size, PROT_READ | PROT_WRITE)) == nullptr) {
    failed = "mmap";
  } else if (::fcntl(fd, F_ADD_SEALS, last) != 0) {
    failed = "sealing";
  }
  if (!failed) return OwnedMapping(data, size, fd);
  auto error = system_error(failed, size);
  if (data != nullptr) ::munmap(data, size);
  ::close(fd);
  return error;
}

Result<SharedMapping> SharedMapping::map(int fd, std::uint64_t size, Use use) {
  constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kFixedSize) != kFixedSize) {
    return fail(Code::kProtocolError, "a peer's memory is not sealed against a change of its size");
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error("fstat", size);
  if (size == 0 || static_cast<std::uint64_t>(status.st_size) != size || size % kSmallPage != 0) {
    return fail(Code::kProtocolError,
                fmt::format("a peer's memory has {} bytes, it said {}", status.st_size, size));
  }
  const int protection = use == Use::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  std::byte* const data = map_fd(fd, size, protection);
  if (data == nullptr) return system_error("mmap", size);
  return SharedMapping(data, size, -1);
}

// A kernel that can't do it, or a file that can't tell, leaves all to the faults.
bool MappingWarmer::step() {
  const auto look = [this](int what) {
    const off_t found = ::lseek(fd_, static_cast<off_t>(at_), what);
    return found < 0 ? mapping_.size() : static_cast<std::uint64_t>(found);
  };
  at_ = std::min(look(SEEK_DATA), mapping_.size()) / kSmallPage * kSmallPage;
  if (at_ == mapping_.size()) return false;
  const std::uint64_t end =
      std::min(at_ / kHugePage * kHugePage + kHugePage, std::min(look(SEEK_HOLE), mapping_.size()));
  if (end <= at_ || ::madvise(mapping_.data() + at_, end - at_, kPopulateWrite) != 0) {
    at_ = mapping_.size();
    return false;
  }
  at_ = end;
  return at_ != mapping_.size();
}

}  // namespace mooncake::os
