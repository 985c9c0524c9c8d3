// What is told of another process's pages: those that are there, those that are not, and those of
// files.
#include "os/process_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace mooncake::os {
namespace {

constexpr std::size_t kPage = 4096;

// Memory of this process, of which a child has an image of its own.
std::byte* map(std::size_t pages, int flags, int fd = -1) {
  void* const memory = ::mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, flags, fd, 0);
  ::madvise(memory, pages * kPage, MADV_NOHUGEPAGE);
  return static_cast<std::byte*>(memory);
}

// A child that has run `prepare`, and waits for its end.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      prepare();
      if (::write(ready[1], "r", 1) != 1) ::_exit(1);
      for (;;)
        ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

iovec pages_of(std::byte* memory, std::size_t first, std::size_t count) {
  return {memory + first * kPage, count * kPage};
}

TEST(ProcessPagesTest, PagesAreThereOnceTheyAreTouched) {
  constexpr std::size_t kPages = 2000;
  std::byte* const memory = map(kPages, MAP_PRIVATE | MAP_ANONYMOUS);
  const Child child([memory] {
    std::memset(memory, 1, 1500 * kPage);
    ::madvise(memory + 1000 * kPage, kPage, MADV_DONTNEED);
  });
  const auto pages = ProcessPages::open(child.pid());
  ASSERT_TRUE(pages) << pages.error().message();
  const auto there = [&](std::vector<iovec> ranges) {
    return pages->are_there(ranges, PageUse::kRead) && pages->are_there(ranges, PageUse::kWrite);
  };
  EXPECT_TRUE(there({}));
  EXPECT_TRUE(there({pages_of(memory, 0, 1000)}));
  EXPECT_TRUE(there({pages_of(memory, 1001, 499)}));
  EXPECT_FALSE(there({pages_of(memory, 0, 1001)}));
  EXPECT_FALSE(there({pages_of(memory, 1500, 1)}));
  // Around the missing page, in any order, and a byte of each neighbour.
  EXPECT_TRUE(there({pages_of(memory, 999, 1), pages_of(memory, 1001, 1)}));
  EXPECT_TRUE(there({pages_of(memory, 1001, 1), pages_of(memory, 999, 1), {memory, 0}}));
  EXPECT_TRUE(there({{memory + 1000 * kPage - 1, 1}, {memory + 1001 * kPage, 1}}));
  EXPECT_FALSE(there({{memory + 1000 * kPage - 1, 2}}));
  EXPECT_FALSE(there({pages_of(memory, 1, 3), pages_of(memory, 1000, 1)}));
  // As much as one copy may name.
  std::vector<iovec> pieces;
  for (std::size_t i = 0; i < 999; ++i)
    pieces.push_back({memory + i * kPage + 100, 700});
  EXPECT_TRUE(there(pieces));
  pieces.push_back(pages_of(memory, 1000, 1));
  EXPECT_FALSE(there(pieces));
  ::munmap(memory, kPages * kPage);
}

// To write into a page of a file may take its server's time even when the page is there.
TEST(ProcessPagesTest, PagesOfFilesAreReadAndNotWritten) {
  std::string path = testing::TempDir() + "process-pages-XXXXXX";
  UniqueFd file(::mkstemp(path.data()));
  ASSERT_TRUE(file);
  ::unlink(path.c_str());
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  UniqueFd memory(::memfd_create("process-pages", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), kPage), 0);
  struct Kind {
    std::byte* page;
    bool is_written;
  };
  const std::vector<Kind> kinds{{map(1, MAP_SHARED, file.get()), false},
                                {map(1, MAP_PRIVATE, file.get()), true},
                                {map(1, MAP_SHARED, memory.get()), true},
                                {map(1, MAP_SHARED | MAP_ANONYMOUS), true}};
  const Child child([&kinds] {
    for (const Kind& kind : kinds)
      std::memset(kind.page, 1, kPage);
  });
  auto pages = ProcessPages::open(child.pid());
  ASSERT_TRUE(pages) << pages.error().message();
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::vector ranges{pages_of(kinds[i].page, 0, 1)};
      EXPECT_TRUE(pages->are_there(ranges, PageUse::kRead)) << i;
      EXPECT_EQ(pages->are_there(ranges, PageUse::kWrite), kinds[i].is_written) << i;
      const auto address = reinterpret_cast<std::uint64_t>(kinds[i].page);
      EXPECT_EQ(pages->may_be_file(address, kPage), !kinds[i].is_written) << i;
    }
    pages->forget_mappings();
  }
  for (const Kind& kind : kinds)
    ::munmap(kind.page, kPage);
}

// To write there is to wait for the handler, to read is not.
TEST(ProcessPagesTest, WriteProtectedPagesAreReadAndNotWritten) {
  std::byte* const memory = map(2, MAP_PRIVATE | MAP_ANONYMOUS);
  std::memset(memory, 1, 2 * kPage);
  const UniqueFd handler(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  uffdio_register all{};
  all.range = {reinterpret_cast<std::uint64_t>(memory), 2 * kPage};
  all.mode = UFFDIO_REGISTER_MODE_WP;
  uffdio_writeprotect first{};
  first.range = {reinterpret_cast<std::uint64_t>(memory), kPage};
  first.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  if (!handler || ::ioctl(handler.get(), UFFDIO_API, &api) != 0 ||
      ::ioctl(handler.get(), UFFDIO_REGISTER, &all) != 0 ||
      ::ioctl(handler.get(), UFFDIO_WRITEPROTECT, &first) != 0) {
    GTEST_SKIP() << "SKIPPED, NOT PROVEN: userfaultfd can't write-protect here";
  }
  const auto pages = ProcessPages::open(::getpid());
  ASSERT_TRUE(pages) << pages.error().message();
  EXPECT_TRUE(pages->are_there(std::vector{pages_of(memory, 0, 2)}, PageUse::kRead));
  EXPECT_FALSE(pages->are_there(std::vector{pages_of(memory, 0, 1)}, PageUse::kWrite));
  EXPECT_TRUE(pages->are_there(std::vector{pages_of(memory, 1, 1)}, PageUse::kWrite));
  ::munmap(memory, 2 * kPage);
}

TEST(ProcessPagesTest, AnotherProgramHasOtherPages) {
  int told[2];
  ASSERT_EQ(::pipe2(told, O_CLOEXEC), 0);
  int go[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(told[0]);
    char byte = 0;
    if (::read(go[0], &byte, 1) == 1)
      ::execlp("sleep", "sleep", "100", static_cast<char*>(nullptr));
    ::_exit(1);
  }
  ::close(told[1]);
  const auto pages = ProcessPages::open(child);
  ASSERT_TRUE(pages) << pages.error().message();
  EXPECT_TRUE(pages->are_of_process());
  EXPECT_TRUE(pages->are_of_program());
  EXPECT_EQ(::write(go[1], "g", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(told[0], &byte, 1), 0);  // it has executed: its end is closed
  EXPECT_FALSE(pages->are_of_process());
  EXPECT_FALSE(pages->are_of_program());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int fd : {told[0], go[0], go[1]})
    ::close(fd);
}

TEST(ProcessPagesTest, NobodyHasThisPid) {
  EXPECT_EQ(ProcessPages::open(0x7fffffff).error().code(), Code::kNotSupported);
}

}  // namespace
}  // namespace mooncake::os
