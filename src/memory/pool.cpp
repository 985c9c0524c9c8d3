#include "memory/pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace mooncake::memory {

namespace {

constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kSmallPage = 4096;

// Newer than the C library's headers may be.
constexpr int kPopulateWrite = 23;         // MADV_POPULATE_WRITE, Linux 5.14
constexpr int kCollapse = 25;              // MADV_COLLAPSE, Linux 6.1
constexpr unsigned kHuge2Mib = 21u << 26;  // MFD_HUGE_2MB

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

tl::unexpected<Error> system_error(std::string_view what, std::uint64_t size) {
  return fail(Code::kSystemCall,
              fmt::format("{} for a pool of {} bytes: {}", what, size, std::strerror(errno)));
}

// Address space of `size` bytes that begins on a huge page. Nothing is mapped there yet.
std::byte* reserve_aligned(std::uint64_t size) {
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

// Makes a page present for writing without changing it, whoever else may use it.
void touch(std::byte* page) {
  std::atomic_ref(reinterpret_cast<unsigned char&>(*page)).fetch_or(0, std::memory_order_relaxed);
}

// False when memory has run out (where the kernel can say so instead of killing us).
bool populate(std::byte* begin, std::uint64_t size, std::uint64_t page) {
  if (::madvise(begin, size, kPopulateWrite) == 0) return true;
  if (errno != EINVAL) return false;
  for (std::uint64_t at = 0; at < size; at += page)
    touch(begin + at);
  return true;
}

struct Mapping {
  int fd = -1;
  std::byte* data = nullptr;
};

// A sealed memfd, mapped. Nothing is left behind on failure.
Result<Mapping> map_sealed(const std::string& name, std::uint64_t size, unsigned flags) {
  Mapping mapping;
  mapping.fd = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  if (mapping.fd < 0) return system_error("memfd_create", size);
  const char* failed = nullptr;
  if (::ftruncate(mapping.fd, static_cast<off_t>(size)) != 0) {
    failed = "ftruncate";
  } else if (::fcntl(mapping.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    failed = "sealing";
  } else if ((mapping.data = reserve_aligned(size)) == nullptr) {
    failed = "reserving address space";
  } else if (::mmap(mapping.data, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, mapping.fd,
                    0) == MAP_FAILED) {
    failed = "mmap";
  } else if (::madvise(mapping.data, size, MADV_DONTFORK) != 0) {
    failed = "MADV_DONTFORK";
  }
  if (!failed) return mapping;
  auto error = system_error(failed, size);
  if (mapping.data) ::munmap(mapping.data, size);
  ::close(mapping.fd);
  return error;
}

}  // namespace

Result<void> Budget::take(std::uint64_t bytes, std::string_view what) {
  std::uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) {
      return fail(Code::kOutOfMemory, fmt::format("{} asks for {} bytes, {} of {} are in use", what,
                                                  bytes, used, limit_));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return {};
}

void Budget::give_back(std::uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

Result<std::unique_ptr<Pool>> Pool::create(const Options& options) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 46;  // a third of the address space
  if (options.size == 0 || options.size > kLargest) {
    return fail(Code::kInvalidArgument,
                fmt::format("pool size {} is not in 1..{}", options.size, kLargest));
  }
  const std::uint64_t size =
      round_up(options.size, options.size < kHugePage ? kSmallPage : kHugePage);
  if (options.budget) {
    MC_CHECK(options.budget->take(size, options.name));
  }

  Result<Mapping> mapping = fail(Code::kNotSupported);
  auto backing = PageBacking::kSmall;
  if (options.reserved_huge_pages && size % kHugePage == 0) {
    mapping = map_sealed(options.name, size, MFD_HUGETLB | kHuge2Mib);
    if (mapping) backing = PageBacking::kReservedHuge;
  }
  if (!mapping) mapping = map_sealed(options.name, size, 0);
  if (!mapping) {
    if (options.budget) options.budget->give_back(size);
    return fail(std::move(mapping).error());
  }

  auto pool = std::unique_ptr<Pool>(new Pool);
  pool->data_ = mapping->data;
  pool->size_ = size;
  pool->fd_ = mapping->fd;
  pool->owner_ = ::getpid();
  pool->budget_ = options.budget;
  pool->backing_ = backing;
  return pool;
}

Pool::~Pool() {
  // In a forked child the range isn't ours: the mapping was left out, and something else may be
  // there.
  if (::getpid() == owner_) {
    ::munmap(data_, size_);
    if (budget_) budget_->give_back(size_);
  }
  ::close(fd_);
}

std::uint64_t Pool::prepare(std::uint64_t bytes) {
  std::uint64_t done = prepared_.load(std::memory_order_relaxed);
  const std::uint64_t goal = done + std::min(size_ - done, round_up(bytes, kHugePage));
  while (done < goal) {
    const std::uint64_t step = std::min(kHugePage, size_ - done);
    if (!prepare_step(data_ + done, step)) break;
    done += step;
    prepared_.store(done, std::memory_order_release);
  }
  return done;
}

bool Pool::prepare_step(std::byte* begin, std::uint64_t size) {
  if (backing() == PageBacking::kReservedHuge) return populate(begin, size, kHugePage);
  if (size < kHugePage || !collapse_) return populate(begin, size, kSmallPage);
  // One small page is enough for the kernel to have something to collapse.
  if (!populate(begin, kSmallPage, kSmallPage)) return false;
  if (::madvise(begin, size, kCollapse) == 0) {
    touch(begin);
    backing_.store(PageBacking::kCollapsedHuge, std::memory_order_relaxed);
    return true;
  }
  // EINVAL: not known, or not allowed here, and it stays so. Else no huge page could be had just
  // now.
  if (errno == EINVAL) collapse_ = false;
  return populate(begin, size, kSmallPage);
}

}  // namespace mooncake::memory
