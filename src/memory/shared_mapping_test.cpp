// Proves that a peer's memory is mapped only when it can't change under us, and that what peers may
// only read can't be mapped for writing.
#include "memory/shared_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mooncake::memory {
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
}  // namespace mooncake::memory
