// Proves that Unix sockets keep the borders of messages, carry descriptors without leaking any,
// tell who the peer is, and notice its end.
#include "os/local_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>

namespace mooncake::os {
namespace {

std::string fresh_name() {
  static int number = 0;
  return "mooncake-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

struct Pair {
  Pair() {
    const std::string name = fresh_name();
    auto listening = LocalSocket::listen(name);
    EXPECT_TRUE(listening) << listening.error().message();
    auto connected = LocalSocket::connect(name);
    EXPECT_TRUE(connected) << connected.error().message();
    auto accepted = listening->accept();
    EXPECT_TRUE(accepted) << accepted.error().message();
    a = *std::move(connected);
    b = *std::move(accepted);
  }
  LocalSocket a, b;
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

base::ConstBuffer bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(LocalSocket, MessagesKeepTheirBorders) {
  Pair pair;
  ASSERT_TRUE(pair.a.send(bytes_of("one")));
  ASSERT_TRUE(pair.a.send(bytes_of("three")));
  EXPECT_EQ(pair.b.receive()->bytes.size(), 3u);
  EXPECT_EQ(pair.b.receive()->bytes.size(), 5u);
  EXPECT_EQ(pair.b.receive().error().code(), Code::kBusy);
}

TEST(LocalSocket, CarriesDescriptors) {
  Pair pair;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  ASSERT_TRUE(pair.a.send(bytes_of("x"), pipe));
  ::close(pipe[1]);
  auto message = pair.b.receive();
  ASSERT_TRUE(message);
  ASSERT_EQ(message->fds.size(), 2u);
  EXPECT_EQ(::write(message->fds[1].get(), "hi", 2), 2);
  std::array<char, 2> got{};
  EXPECT_EQ(::read(pipe[0], got.data(), got.size()), 2);
  EXPECT_NE(::fcntl(message->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  ::close(pipe[0]);
}

TEST(LocalSocket, NothingThatWasRefusedIsLeaked) {
  Pair pair;
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pair.a.send(bytes_of("x"), std::array{0, 1, 2, 0}));
    ASSERT_TRUE(pair.b.receive());
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(LocalSocket, NobodyThereIsUnreachable) {
  EXPECT_EQ(LocalSocket::connect(fresh_name()).error().code(), Code::kUnreachable);
  EXPECT_EQ(LocalSocket::connect("").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(LocalSocket::connect(std::string(200, 'x')).error().code(), Code::kInvalidArgument);
  const std::string name = fresh_name();
  const auto one = LocalSocket::listen(name);
  ASSERT_TRUE(one);
  EXPECT_EQ(LocalSocket::listen(name).error().code(), Code::kAddressInUse);
  EXPECT_EQ(one->accept().error().code(), Code::kBusy);
}

TEST(LocalSocket, TheEndShows) {
  Pair pair;
  const auto self = open_process(::getpid());
  ASSERT_TRUE(self) << self.error().message();
  EXPECT_FALSE(has_ended(*self, pair.a));
  ASSERT_TRUE(pair.b.send(bytes_of("unread")));
  EXPECT_FALSE(has_ended(*self, pair.a)) << "something to read is no end";
  pair.b = {};
  EXPECT_TRUE(has_ended(*self, pair.a));
  EXPECT_TRUE(pair.a.receive());
  EXPECT_EQ(pair.a.receive().error().code(), Code::kConnectionLost);
  EXPECT_EQ(pair.a.send(bytes_of("x")).error().code(), Code::kConnectionLost);
}

TEST(LocalSocket, TheKernelSaysWhoThePeerIsAndWhenItExits) {
  const std::string name = fresh_name();
  const auto listening = LocalSocket::listen(name);
  ASSERT_TRUE(listening);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto connected = LocalSocket::connect(name);
    ::pause();
    ::_exit(connected ? 0 : 1);
  }
  Result<LocalSocket> accepted = listening->accept();
  while (!accepted && accepted.error().code() == Code::kBusy)
    accepted = listening->accept();
  ASSERT_TRUE(accepted);
  const auto peer = accepted->peer();
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, child);
  EXPECT_EQ(peer->uid, ::getuid());
  const auto process = open_process(peer->pid);
  ASSERT_TRUE(process);
  EXPECT_FALSE(has_ended(*process, *accepted));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(has_ended(*process, *accepted));
  EXPECT_FALSE(open_process(child));
}

}  // namespace
}  // namespace mooncake::os
