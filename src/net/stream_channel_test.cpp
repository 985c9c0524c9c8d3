// Channels over loopback sockets and over rings: order, one system call for many frames, payloads
// between sources and sinks, and how a channel ends: by close, by the peer, by garbage, by standing
// still.
#include "net/socket_network.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/random.h"
#include "net/net_testing.h"
#include "net/rpc_codec.h"

namespace mooncake::net {
namespace {

using namespace testing;

FrameHeader header_with(std::uint32_t id, std::uint16_t flags = 0) {
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(kEcho);
  header.request_id = id;
  header.flags = flags;
  return header;
}

Result<void> send_text(Channel& channel, std::uint32_t id, std::string_view text) {
  const base::ConstBuffer part = base::as_bytes(text);
  return channel.send(header_with(id), {&part, 1});
}

Task<std::string> receive_text(Channel& channel) {
  Result<FrameHeader> header = co_await channel.receive();
  if (!header) co_return "error: " + header.error().message();
  Result<Bytes> body = co_await receive_body(channel, header->payload_length);
  if (!body) co_return "error: " + body.error().message();
  co_return std::to_string(header->request_id) + ":" + to_text(*body);
}

class StreamChannelTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Where a listener of this wire may be.
  static Address at() {
    if (GetParam() == std::string("tcp")) return Address("127.0.0.1", 0);
    return Address(std::string(kRingScheme) + "test-" + std::to_string(base::secure_random()), 0);
  }
  SocketNet net;
};
INSTANTIATE_TEST_SUITE_P(Wires, StreamChannelTest, ::testing::Values("tcp", "rings"),
                         [](const auto& wire) { return std::string(wire.param); });

Task<bool> frames_in_order(os::Env env, Address at) {
  ChannelPair ends = co_await socket_pair(env, at);
  EXPECT_TRUE(send_text(*ends.first, 1, "one"));
  EXPECT_TRUE(send_text(*ends.first, 2, ""));
  EXPECT_TRUE(send_text(*ends.first, 3, std::string(200'000, 'x')));
  EXPECT_TRUE(send_text(*ends.first, 4, "four"));
  EXPECT_TRUE(send_text(*ends.second, 5, "back"));
  EXPECT_EQ(co_await receive_text(*ends.second), "1:one");
  EXPECT_EQ(co_await receive_text(*ends.second), "2:");
  EXPECT_EQ(co_await receive_text(*ends.second), "3:" + std::string(200'000, 'x'));
  EXPECT_EQ(co_await receive_text(*ends.second), "4:four");
  EXPECT_EQ(co_await receive_text(*ends.first), "5:back");
  EXPECT_EQ(ends.first->peer().pid, is_ring(at) ? ::getpid() : 0);
  EXPECT_FALSE(ends.first->peer().same_process);
  EXPECT_EQ(ends.first->peer().address.substr(0, 10), is_ring(at) ? "shared mem" : "127.0.0.1:");
  co_return true;
}
TEST_P(StreamChannelTest, FramesArriveInOrder) { net.run(frames_in_order(net.env(), at())); }

Task<bool> many_small(os::Env env, Address at) {
  ChannelPair ends = co_await socket_pair(env, at);
  constexpr std::uint32_t kFrames = 20'000;
  for (std::uint32_t i = 0; i < kFrames; ++i)
    EXPECT_TRUE(send_text(*ends.first, i, "abc"));
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    const std::string text = co_await receive_text(*ends.second);
    if (text != std::to_string(i) + ":abc") {
      ADD_FAILURE() << i << ": " << text;
      break;
    }
  }
  co_return true;
}
TEST_P(StreamChannelTest, ManySmallFramesPass) { net.run(many_small(net.env(), at())); }

// Pieces of any size, and a switch that turns it off.
class TestSource final : public PayloadSource {
 public:
  TestSource(const Bytes& bytes, std::size_t piece) : bytes_(bytes), piece_(piece) {}
  base::ConstBuffer next(std::size_t remaining) override {
    EXPECT_TRUE(alive);
    const std::size_t size = std::min({remaining, piece_, bytes_.size() - taken});
    const base::ConstBuffer piece = base::ConstBuffer(bytes_).subspan(taken, size);
    taken += size;
    if (taken >= dies_at) alive = false;
    return piece;
  }
  std::size_t next_all(std::size_t remaining, std::span<base::ConstBuffer> pieces) override {
    std::size_t count = 0;
    while (remaining > 0 && alive && count < pieces.size()) {
      pieces[count] = next(remaining);
      remaining -= pieces[count++].size();
    }
    return count;
  }
  bool live() const override { return alive; }

  bool alive = true;
  std::size_t taken = 0;
  std::size_t dies_at = SIZE_MAX;

 private:
  const Bytes& bytes_;
  const std::size_t piece_;
};

// Many places of `piece` bytes in one block.
class RowSink final : public PayloadSink {
 public:
  RowSink(Bytes& bytes, std::size_t piece) : bytes_(bytes), piece_(piece) {}
  std::span<std::byte> prepare(std::size_t remaining) override { return place(filled_, remaining); }
  std::size_t prepare_all(std::size_t remaining, std::span<std::span<std::byte>> places) override {
    std::size_t count = 0;
    for (std::size_t at = filled_; remaining > 0 && count < places.size(); ++count) {
      places[count] = place(at, remaining);
      at += places[count].size();
      remaining -= places[count].size();
    }
    return count;
  }
  void commit(std::size_t size) override { filled_ += size; }

 private:
  std::span<std::byte> place(std::size_t at, std::size_t remaining) {
    return std::span<std::byte>(bytes_).subspan(at, std::min(remaining, piece_ - at % piece_));
  }

  Bytes& bytes_;
  const std::size_t piece_;
  std::size_t filled_ = 0;
};

Task<void> send_source(Channel& channel, PayloadSource& source, std::size_t size,
                       std::optional<Result<void>>& result) {
  result.emplace(co_await channel.send_from(header_with(7, kData), source, size));
}

Task<bool> sources(os::Env env, Address at) {
  ChannelPair ends = co_await socket_pair(env, at);
  const Bytes bytes = pattern(kMaxDataPayload);
  for (std::size_t piece : {100u, 1000u, 4096u, 20'000u, kMaxDataPayload}) {
    for (std::size_t size :
         {std::size_t{1}, std::size_t{100'000}, bytes.size() - 1, bytes.size()}) {
      TestSource source(bytes, piece);
      std::optional<Result<void>> sent;
      base::TaskGroup group;
      group.start(send_source(*ends.first, source, size, sent));
      EXPECT_TRUE(send_text(*ends.first, 8, "after"));
      Result<FrameHeader> header = co_await ends.second->receive();
      Bytes got(size);
      VectorSink one(got, piece * 3 + 1);
      RowSink row(got, piece + 1);
      PayloadSink& sink = size % 2 == 0 ? static_cast<PayloadSink&>(row) : one;
      EXPECT_TRUE(co_await ends.second->receive_payload(sink, header->payload_length));
      EXPECT_TRUE(got.size() == size && std::equal(got.begin(), got.end(), bytes.begin()));
      EXPECT_EQ(co_await receive_text(*ends.second), "8:after");
      co_await group.join();
      EXPECT_TRUE(sent && *sent);
    }
  }
  co_return true;
}
TEST_P(StreamChannelTest, PayloadsOfAnyShapePass) { net.run(sources(net.env(), at())); }

Task<bool> dead_source(os::Env env, Address at) {
  ChannelPair ends = co_await socket_pair(env, at);
  Bytes bytes = pattern(kMaxDataPayload);
  const Bytes original = bytes;
  TestSource source(bytes, 1u << 20);
  source.dies_at = 3u << 20;
  std::optional<Result<void>> sent;
  base::TaskGroup group;
  group.start(send_source(*ends.first, source, bytes.size(), sent));
  Result<FrameHeader> header = co_await ends.second->receive();
  Bytes got;
  VectorSink sink(got);
  EXPECT_TRUE(co_await ends.second->receive_payload(sink, header->payload_length));
  co_await group.join();
  EXPECT_TRUE(sent && *sent);
  const auto end = std::mismatch(got.begin(), got.end(), original.begin()).first;
  EXPECT_LE(end - got.begin(), 3 << 20);
  EXPECT_TRUE(std::all_of(end, got.end(), [](std::byte b) { return b == std::byte{0}; }));
  co_return true;
}
TEST_P(StreamChannelTest, ADeadSourceIsFilledUpWithZeros) { net.run(dead_source(net.env(), at())); }

Task<void> receive_into(Channel& channel, std::optional<Result<FrameHeader>>& out) {
  out.emplace(co_await channel.receive());
}

Task<bool> closing(os::Env env, Address at) {
  ChannelPair ends = co_await socket_pair(env, at);
  const Bytes bytes = pattern(kMaxDataPayload);
  std::optional<Result<void>> sent[4];
  std::optional<Result<FrameHeader>> received, peer_received;
  base::TaskGroup group;
  std::vector<std::unique_ptr<TestSource>> used;
  for (auto& result : sent) {
    used.push_back(std::make_unique<TestSource>(bytes, SIZE_MAX));
    group.start(send_source(*ends.first, *used.back(), bytes.size(), result));
  }
  group.start(receive_into(*ends.first, received));
  co_await env.executor.yield();
  ends.first->close(Error(Code::kCancelled, "enough"));
  ends.first->close(Error(Code::kInternal, "the first reason stays"));
  EXPECT_FALSE(received);  // waiters are resumed through the executor
  co_await group.join();
  EXPECT_EQ(received->error().code(), Code::kCancelled);
  EXPECT_EQ((*sent)->error().code(), Code::kCancelled);
  for (auto& result : sent)
    EXPECT_TRUE(result && !*result);
  EXPECT_TRUE(ends.first->closed());
  EXPECT_EQ(send_text(*ends.first, 1, "x").error().code(), Code::kCancelled);
  EXPECT_EQ((co_await ends.first->receive()).error().code(), Code::kCancelled);

  // The peer sees a frame that breaks off.
  Result<FrameHeader> header = co_await ends.second->receive();
  if (header) {
    DiscardSink sink;
    Result<void> payload = co_await ends.second->receive_payload(sink, header->payload_length);
    EXPECT_EQ(payload.error().code(), Code::kConnectionLost);
  }
  EXPECT_TRUE(ends.second->closed());
  co_return true;
}
TEST_P(StreamChannelTest, ClosingEndsAllWhoWait) { net.run(closing(net.env(), at())); }

Task<bool> too_large(os::Env env, Address at) {
  ChannelPair ends = co_await socket_pair(env, at);
  const Bytes bytes(kMaxControlPayload + 1);
  const base::ConstBuffer part(bytes);
  EXPECT_EQ(ends.first->send(header_with(1), {&part, 1}).error().code(), Code::kInvalidArgument);
  const base::ConstBuffer data = part.first(kMaxDataPayload + 1);
  EXPECT_EQ(ends.first->send(header_with(1, kData), {&data, 1}).error().code(),
            Code::kInvalidArgument);
  const base::ConstBuffer most = part.first(kMaxControlPayload);
  Result<void> sent;
  for (int i = 0; i < 5 && sent; ++i)
    sent = ends.first->send(header_with(1), {&most, 1});
  EXPECT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), Code::kBusy);
  EXPECT_FALSE(ends.first->closed());
  co_return true;
}
TEST_P(StreamChannelTest, LimitsOfFramesAndOfTheQueueHold) { net.run(too_large(net.env(), at())); }

// A channel whose other end is a bare descriptor.
class BareTest : public ::testing::Test {
 protected:
  SocketNet net;

  BareTest() {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
    bare = fds[0];
    channel =
        *make_socket_channel(dynamic_cast<Reactor&>(net.env().executor), fds[1], AF_UNIX, {"bare"});
  }
  ~BareTest() override {
    ::close(bare);
    net.run(drop());
  }
  Task<bool> drop() {
    channel.reset();
    co_return true;
  }
  void write(base::ConstBuffer bytes) {
    ASSERT_EQ(::send(bare, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  Task<bool> expect_error(Code code, std::string_view words) {
    Result<FrameHeader> header = co_await channel->receive();
    EXPECT_FALSE(header);
    EXPECT_EQ(header.error().code(), code);
    EXPECT_NE(header.error().message().find(words), std::string::npos) << header.error().message();
    EXPECT_TRUE(channel->closed());
    co_return true;
  }
  Task<bool> expect_stall() {
    channel->set_stall_timeout(milliseconds(20));
    return expect_error(Code::kDeadlineExceeded, "stood still");
  }

  int bare = -1;
  std::unique_ptr<Channel> channel;
};

TEST_F(BareTest, GarbageClosesNamingWhatIsWrong) {
  write(base::as_bytes("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"));
  net.run(expect_error(Code::kProtocolError, "bare: frame: magic"));
}

TEST_F(BareTest, GarbageShorterThanAFrameClosesAtOnce) {
  write(base::as_bytes("GET "));
  net.run(expect_error(Code::kProtocolError, "bare: frame: magic"));
}

TEST_F(BareTest, LessThanAMagicIsALostConnection) {
  write(base::as_bytes("GET"));
  ::shutdown(bare, SHUT_RDWR);
  net.run(expect_error(Code::kConnectionLost, "closed by the peer"));
}

TEST_F(BareTest, ADamagedHeaderCloses) {
  FrameBytes bytes = encode(header_with(1));
  bytes[20] ^= std::byte{1};
  write(bytes);
  net.run(expect_error(Code::kProtocolError, "checksum"));
}

TEST_F(BareTest, AnOversizeFrameCloses) {
  FrameHeader header = header_with(1);
  header.payload_length = kMaxControlPayload + 1;
  write(encode(header));
  net.run(expect_error(Code::kProtocolError, "payload of 16777217 bytes"));
}

TEST_F(BareTest, AnotherVersionCloses) {
  FrameHeader header = header_with(1);
  header.version = 2;
  write(encode(header));
  net.run(expect_error(Code::kVersionMismatch, "version 2"));
}

TEST_F(BareTest, TheEndIsConnectionLost) {
  const FrameBytes front = encode(header_with(1));
  write(base::ConstBuffer(front).first(20));
  ::shutdown(bare, SHUT_RDWR);
  net.run(expect_error(Code::kConnectionLost, "closed by the peer"));
}

TEST_F(BareTest, AFrameThatStandsStillCloses) {
  const FrameBytes front = encode(header_with(1));
  write(base::ConstBuffer(front).first(20));
  net.run(expect_stall());
}

Task<bool> extended(Channel* channel) {
  Result<FrameHeader> header = co_await channel->receive();
  EXPECT_TRUE(header);
  Result<Bytes> body = co_await receive_body(*channel, header->payload_length);
  EXPECT_EQ(to_text(*body), "body");
  co_return true;
}
TEST_F(BareTest, ExtensionsAreSkipped) {
  FrameHeader header = header_with(1);
  header.header_length = kFrameHeaderSize + 12;
  header.payload_length = 4;
  Bytes bytes;
  const FrameBytes front = encode(header);
  bytes.insert(bytes.end(), front.begin(), front.end());
  // Type 99 with six bytes, and the checksum of these eight.
  Bytes extension(8);
  extension[0] = std::byte{99};
  extension[1] = std::byte{6};
  const std::uint32_t crc = base::crc32c(extension);
  const base::ConstBuffer tail = std::as_bytes(std::span<const std::uint32_t, 1>(&crc, 1));
  bytes.insert(bytes.end(), extension.begin(), extension.end());
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  const base::ConstBuffer body = base::as_bytes("body");
  bytes.insert(bytes.end(), body.begin(), body.end());
  write(bytes);
  net.run(extended(channel.get()));
}

// The peer does not read: the sender's frame stands still.
Task<bool> unread(Channel* channel) {
  channel->set_stall_timeout(milliseconds(20));
  const Bytes bytes = pattern(kMaxDataPayload);
  TestSource source(bytes, SIZE_MAX);
  Result<void> sent = co_await channel->send_from(header_with(1, kData), source, bytes.size());
  EXPECT_EQ(sent.error().code(), Code::kDeadlineExceeded);
  co_return true;
}
TEST_F(BareTest, APeerThatDoesNotReadIsLeft) { net.run(unread(channel.get())); }

// What is queued in one turn arrives by one system call: one read gets all of it.
Task<bool> one_turn(Channel* channel) {
  for (std::uint32_t i = 0; i < 100; ++i)
    EXPECT_TRUE(send_text(*channel, i, "x"));
  co_return true;
}
TEST_F(BareTest, OneTurnIsOneSystemCall) {
  net.run(one_turn(channel.get()));
  std::vector<char> buffer(65536);
  EXPECT_EQ(::recv(bare, buffer.data(), buffer.size(), 0), 100 * 49);
}

}  // namespace
}  // namespace mooncake::net
