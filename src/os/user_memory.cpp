#include "os/user_memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdint>

#include "os/local_socket.h"

namespace mooncake::os {

namespace {

constexpr std::size_t kMaxPieces = 256;  // of one system call

// Kernels and sandboxes that refuse process_vm_* even for the process itself: through a file.
bool through_file(bool to_user, std::byte* ours, std::byte* theirs, std::size_t size) {
  thread_local const UniqueFd file(::memfd_create("mooncake-copy", MFD_CLOEXEC));
  if (!file) return false;
  std::byte* const first = to_user ? ours : theirs;
  std::byte* const second = to_user ? theirs : ours;
  const auto whole = static_cast<ssize_t>(size);
  return ::pwrite(file.get(), first, size, 0) == whole &&
         ::pread(file.get(), second, size, 0) == whole;
}

// The kernel copies, and stops before what it can't reach. The number of pieces that were moved.
std::size_t move(bool to_user, std::byte* ours, std::span<const iovec> theirs) {
  std::size_t size = 0;
  for (const iovec& piece : theirs)
    size += piece.iov_len;
  const iovec local{ours, size};
  const ssize_t moved =
      to_user ? ::process_vm_writev(::getpid(), &local, 1, theirs.data(), theirs.size(), 0)
              : ::process_vm_readv(::getpid(), &local, 1, theirs.data(), theirs.size(), 0);
  const bool refused = moved < 0 && errno != EFAULT;
  std::size_t left = moved < 0 ? 0 : static_cast<std::size_t>(moved);
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const std::size_t length = theirs[i].iov_len;
    if (refused) {
      if (!through_file(to_user, ours, static_cast<std::byte*>(theirs[i].iov_base), length)) {
        return i;
      }
    } else if (left < length) {
      return i;
    } else {
      left -= length;
    }
    ours += length;
  }
  return theirs.size();
}

}  // namespace

bool gather_from_user(std::byte* to, base::ConstBuffers from) {
  std::array<iovec, kMaxPieces> pieces;
  for (std::size_t at = 0; at < from.size();) {
    std::size_t count = 0, size = 0;
    for (; at < from.size() && count < kMaxPieces; ++at) {
      if (from[at].empty()) continue;
      pieces[count++] = {const_cast<std::byte*>(from[at].data()), from[at].size()};
      size += from[at].size();
    }
    if (count > 0 && move(false, to, std::span(pieces).first(count)) < count) return false;
    to += size;
  }
  return true;
}

std::size_t scatter_to_user(std::span<const std::span<std::byte>> to, base::ConstBuffer from) {
  std::array<iovec, kMaxPieces> pieces;
  for (std::size_t at = 0; at < to.size() && !from.empty();) {
    std::size_t count = 0, size = 0;
    for (; at + count < to.size() && count < kMaxPieces && size < from.size(); ++count) {
      const std::size_t length = std::min(to[at + count].size(), from.size() - size);
      pieces[count] = {to[at + count].data(), length};
      size += length;
    }
    const std::size_t moved =
        move(true, const_cast<std::byte*>(from.data()), std::span(pieces).first(count));
    at += moved;
    if (moved < count) return at;
    from = from.subspan(size);
  }
  assert(from.empty());
  return to.size();
}

bool is_user_writable(const void* address) {
#ifdef MADV_POPULATE_WRITE
  static const auto kPage = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto look = [](const void* at) {
    const auto page = reinterpret_cast<std::uintptr_t>(at) / kPage * kPage;
    return ::madvise(reinterpret_cast<void*>(page), kPage, MADV_POPULATE_WRITE) == 0;
  };
  // Before Linux 5.14 nothing can be said.
  static const bool known = [&look] {
    int here = 0;
    return look(&here);
  }();
  return !known || look(address);
#else
  static_cast<void>(address);
  return true;
#endif
}

}  // namespace mooncake::os
