// Proves that a peer's memory is mapped only when it can't change under us, and that what peers may
// only read can't be mapped for writing.
#include "os/shared_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mooncake::os {
namespace {

using PeersMay = OwnedMapping::PeersMay;
using Use = SharedMapping::Use;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

TEST(SharedMapping, BothSidesSeeTheSameBytes) {
  auto owned = OwnedMapping::create("test", 5000, PeersMay::kWrite);
  ASSERT_TRUE(owned) << owned.error().message();
  EXPECT_EQ(owned->size(), 8192u);
  auto mapped = SharedMapping::map(owned->fd(), owned->size(), Use::kReadWrite);
  ASSERT_TRUE(mapped) << mapped.error().message();
  ASSERT_NE(mapped->data(), owned->data());
  mapped->data()[8191] = std::byte{7};
  EXPECT_EQ(owned->data()[8191], std::byte{7});
}

TEST(SharedMapping, OwnMemoryCantChangeItsSizeOrSeals) {
  auto owned = OwnedMapping::create("test", 8192, PeersMay::kWrite);
  ASSERT_TRUE(owned);
  EXPECT_NE(::ftruncate(owned->fd(), 4096), 0);
  EXPECT_NE(::ftruncate(owned->fd(), 12288), 0);
  EXPECT_NE(::fcntl(owned->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedMapping, WhatPeersOnlyReadCantBeWritten) {
  auto owned = OwnedMapping::create("test", 4096, PeersMay::kOnlyRead);
  ASSERT_TRUE(owned) << owned.error().message();
  owned->data()[0] = std::byte{1};
  EXPECT_FALSE(SharedMapping::map(owned->fd(), 4096, Use::kReadWrite));
  auto mapped = SharedMapping::map(owned->fd(), 4096, Use::kRead);
  ASSERT_TRUE(mapped) << mapped.error().message();
  owned->data()[1] = std::byte{2};
  EXPECT_EQ(mapped->data()[1], std::byte{2});
  EXPECT_NE(::write(owned->fd(), "x", 1), 1);
}

bool has_page(const std::byte* at) {
  // The page table alone: mincore() would also tell of pages that only the memfd has.
  const Fd pages(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::uint64_t entry = 0;
  const auto offset = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(at) / 4096 * 8);
  EXPECT_EQ(::pread(pages.get(), &entry, sizeof entry, offset), 8);
  return (entry >> 63) != 0;
}

// What is there is in the page table afterwards; what is not there is not made.
TEST(SharedMapping, IsWarmedWhereThereAreBytes) {
  constexpr std::uint64_t kMiB = 1u << 20;
  auto owned = OwnedMapping::create("test", 64 * kMiB, PeersMay::kWrite);
  ASSERT_TRUE(owned);
  owned->data()[0] = owned->data()[3 * kMiB] = owned->data()[64 * kMiB - 1] = std::byte{7};
  const auto mapped = SharedMapping::map(owned->fd(), owned->size(), Use::kReadWrite);
  ASSERT_TRUE(mapped);
  EXPECT_FALSE(has_page(mapped->data()));
  MappingWarmer warmer(*mapped, owned->fd());
  int steps = 1;
  for (std::uint64_t last = 0; warmer.step(); ++steps) {
    EXPECT_GT(warmer.warm_to(), last);
    last = warmer.warm_to();
  }
  EXPECT_EQ(warmer.warm_to(), mapped->size());
  EXPECT_LE(steps, 4);
  EXPECT_FALSE(warmer.step());
  for (const std::uint64_t at : {std::uint64_t{0}, 3 * kMiB, 64 * kMiB - 4096})
    EXPECT_TRUE(has_page(mapped->data() + at)) << at;
  EXPECT_FALSE(has_page(mapped->data() + 32 * kMiB));
  struct stat status {};
  ASSERT_EQ(::fstat(owned->fd(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, 16 << 20) << "nothing was made where nothing was";
}

TEST(SharedMapping, NothingToWarm) {
  auto owned = OwnedMapping::create("test", 8192, PeersMay::kWrite);
  ASSERT_TRUE(owned);
  const auto mapped = SharedMapping::map(owned->fd(), owned->size(), Use::kReadWrite);
  MappingWarmer warmer(*mapped, owned->fd());
  EXPECT_FALSE(warmer.step());
  EXPECT_EQ(warmer.warm_to(), 8192u);
  // A file that can't tell where bytes are.
  const Fd null(::open("/dev/null", O_RDWR));
  MappingWarmer blind(*mapped, null.get());
  EXPECT_FALSE(blind.step());
  EXPECT_EQ(blind.warm_to(), 8192u);
}

TEST(SharedMapping, WhatMayShrinkIsRefused) {
  const Fd open(::memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 8192), 0);
  EXPECT_EQ(SharedMapping::map(open.get(), 8192, Use::kRead).error().code(), Code::kProtocolError);
  const Fd half(::memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(half.get(), 8192), 0);
  ASSERT_EQ(::fcntl(half.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(SharedMapping::map(half.get(), 8192, Use::kRead));
}

TEST(SharedMapping, AnotherSizeOrKindOfFileIsRefused) {
  auto owned = OwnedMapping::create("test", 8192, PeersMay::kWrite);
  ASSERT_TRUE(owned);
  for (const std::uint64_t size : {0ull, 4096ull, 8191ull, 12288ull, ~0ull, 1ull << 60}) {
    EXPECT_FALSE(SharedMapping::map(owned->fd(), size, Use::kRead)) << size;
  }
  const Fd null(::open("/dev/null", O_RDWR));
  EXPECT_FALSE(SharedMapping::map(null.get(), 4096, Use::kRead));
  EXPECT_FALSE(SharedMapping::map(-1, 4096, Use::kRead));
}

}  // namespace
}  // namespace mooncake::os
