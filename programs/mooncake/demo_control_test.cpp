// Proves: every control message comes back as it was sent, whole lines in any pieces; what is no
// message is an error that quotes it; the end of the stream is told apart. Over real socket pairs.
#include "demo_control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace mooncake::demo {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    a = ControlChannel(ends[0]);
    b = ControlChannel(ends[1]);
  }
  ControlChannel a, b;
};

std::vector<Message> one_of_each() {
  const WrongBlock wrong = {7, 42, 3, 17, "decode-1", "hand-off"};
  const Check check = {1000, 1, {wrong}};
  return {
      Setup{"prefill", "prefill-0", "127.0.0.1:1", 1, 2, 3, 4, ~std::uint64_t{0}, 2, "shm"},
      Peers{{{"decode-0", "127.0.0.1:2", ~std::uint64_t{0}}, {"decode-1", "[::1]:3", 5}}},
      Work{9, {0, 1, ~std::uint64_t{0}}, std::nullopt},
      Work{9, {}, Corruption{3, 17}},
      Slot{9, 1, 0},
      Verify{9, 1, 30, {5, 6}},
      Stop{},
      Ready{"127.0.0.1:2", 4096},
      Found{9, 2},
      Stored{9, 3, {{-200, 4}, {-900, 1}}, {10, 20}, {30, 40}, check},
      Handed{9, 0, 3, true, {10, 20}, {{"tcp", "the \"only\"\npath"}}},
      Verified{9, 1, check},
      Stopped{{{"local", 1}, {"tcp", 2}}},
  };
}

TEST(Control, EveryMessageComesBack) {
  for (const Message& message : one_of_each()) {
    const std::string line = encode(message);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto back = decode(line);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_TRUE(*back == message) << line;
  }
}

TEST(Control, WhatIsNoMessageIsQuoted) {
  const char* const lines[] = {"",
                               "{",
                               "[]",
                               "7",
                               "{}",
                               R"({"type": 3})",
                               R"({"type": "unknown"})",
                               R"({"type": "found", "request": 1})",
                               R"({"type": "found", "request": "1", "hits": 2})",
                               R"({"type": "work", "request": 1, "ids": [{}]})"};
  for (const char* line : lines) {
    const auto message = decode(line);
    ASSERT_FALSE(message) << line;
    EXPECT_EQ(message.error().code(), Code::kProtocolError);
    EXPECT_NE(message.error().detail().find(std::string(line).substr(0, 20)), std::string::npos)
        << message.error().detail();
  }
}

TEST(Control, ManyMessagesArriveInOrder) {
  Pair pair;
  for (const Message& message : one_of_each())
    pair.a.send(message);
  const auto received = pair.b.receive();
  ASSERT_TRUE(received);
  EXPECT_TRUE(*received == one_of_each());
  const auto more = pair.b.receive();
  ASSERT_TRUE(more);
  EXPECT_TRUE(more->empty());
}

TEST(Control, ALargeMessageArrivesInPieces) {
  Pair pair;
  const Work work = {1, std::vector<std::uint64_t>(200'000, 123456789), std::nullopt};
  pair.a.send(work);
  EXPECT_TRUE(pair.a.has_unsent());  // else this test proves nothing
  std::vector<Message> received;
  while (received.empty()) {
    auto some = pair.b.receive();
    ASSERT_TRUE(some) << some.error().message();
    received = std::move(*some);
    pair.a.flush();
  }
  EXPECT_FALSE(pair.a.has_unsent());
  EXPECT_TRUE(received.front() == Message(work));
}

TEST(Control, TheEndOfTheStreamIsToldAfterTheLastMessage) {
  Pair pair;
  pair.a.send(Found{1, 2});
  pair.a = ControlChannel();
  const auto last = pair.b.receive();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->size(), 1u);
  const auto end = pair.b.receive();
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code(), Code::kConnectionLost);
}

TEST(Control, ALineThatIsNoMessageIsAnError) {
  Pair pair;
  const std::string garbage = "GET / HTTP/1.1\n";
  ASSERT_EQ(::send(pair.a.fd(), garbage.data(), garbage.size(), 0),
            static_cast<ssize_t>(garbage.size()));
  const auto received = pair.b.receive();
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), Code::kProtocolError);
}

}  // namespace
}  // namespace mooncake::demo
