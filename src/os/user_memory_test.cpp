// Memory that went away, is protected or lies behind the end of its file is told of, where a plain
// copy would end the process.
#include "os/user_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "os/local_socket.h"

namespace mooncake::os {
namespace {

constexpr std::size_t kPage = 4096;

class Pages {
 public:
  explicit Pages(std::size_t count, int protection = PROT_READ | PROT_WRITE)
      : size_(count * kPage),
        data_(::mmap(nullptr, size_, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Pages() { ::munmap(data_, size_); }
  std::byte* data() { return static_cast<std::byte*>(data_); }
  std::span<std::byte> page(std::size_t i) { return {data() + i * kPage, kPage}; }
  void protect(std::size_t i, int protection) {
    ASSERT_EQ(::mprotect(page(i).data(), kPage, protection), 0);
  }

 private:
  const std::size_t size_;
  void* const data_;
};

TEST(UserMemory, GathersAndScatters) {
  Pages pages(600);
  std::vector<base::ConstBuffer> parts;
  std::vector<std::span<std::byte>> places;
  for (std::size_t i = 0; i < 600; ++i) {
    std::ranges::fill(pages.page(i), static_cast<std::byte>(i));
    parts.push_back(pages.page(i).subspan(i, 10));
    places.push_back(pages.page(i).subspan(2000, 10));
  }
  std::vector<std::byte> ours(6000);
  ASSERT_TRUE(gather_from_user(ours.data(), parts));
  EXPECT_EQ(ours[5990], static_cast<std::byte>(599));
  std::ranges::fill(ours, std::byte{7});
  EXPECT_EQ(scatter_to_user(places, ours), places.size());
  EXPECT_EQ(pages.page(599)[2009], std::byte{7});
  // Less than the places take.
  EXPECT_EQ(scatter_to_user(places, base::ConstBuffer(ours).first(15)), places.size());
}

TEST(UserMemory, TellsOfWhatIsProtected) {
  Pages pages(3);
  std::vector<std::byte> ours(3 * kPage);
  pages.protect(1, PROT_READ);
  const std::vector<base::ConstBuffer> parts{pages.page(0), pages.page(1), pages.page(2)};
  const std::vector<std::span<std::byte>> places{pages.page(0), pages.page(1), pages.page(2)};
  EXPECT_TRUE(gather_from_user(ours.data(), parts));
  EXPECT_EQ(scatter_to_user(places, ours), 1u);
  EXPECT_TRUE(is_user_writable(pages.page(0).data()));
  EXPECT_FALSE(is_user_writable(pages.page(1).data()));
  pages.protect(1, PROT_NONE);
  EXPECT_FALSE(gather_from_user(ours.data(), parts));
  EXPECT_FALSE(is_user_writable(pages.page(1).data()));
}

TEST(UserMemory, TellsOfTheEndOfAFile) {
  const UniqueFd file(::memfd_create("short", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 2 * kPage), 0);
  void* const mapped =
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const data = static_cast<std::byte*>(mapped);
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  std::vector<std::byte> ours(2 * kPage);
  const base::ConstBuffer both(data, 2 * kPage);
  EXPECT_FALSE(gather_from_user(ours.data(), {&both, 1}));
  const std::span<std::byte> place(data, 2 * kPage);
  EXPECT_EQ(scatter_to_user({&place, 1}, ours), 0u);
  ::munmap(mapped, 2 * kPage);
}

}  // namespace
}  // namespace mooncake::os
