// C2: a peer that names memory it has no right to, with and without a hello before. It is refused
// and counted, no byte of memory shows, and the engine goes on serving others.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "net/frame.h"
#include "net/message.h"
#include "net/network.h"
#include "rig.h"
#include "transfer/transfer_generated.h"

namespace mooncake::transfer {
namespace {

using net::FrameHeader;
using net::Method;

constexpr std::uint64_t kHuge = ~std::uint64_t{0} - 4095;

class StringSink final : public net::PayloadSink {
 public:
  std::span<std::byte> prepare(std::size_t remaining) override {
    bytes.resize(bytes.size() + remaining);
    return std::span(bytes).last(remaining);
  }
  void commit(std::size_t) override {}
  net::Bytes bytes;
};

// What an answer looks like from outside.
struct Answer {
  Answer() = default;
  bool closed = false;
  bool error = false;
  net::Bytes data;
  net::Bytes body;
};

Task<Answer> read_answer(net::Channel& channel) {
  Answer answer;
  for (;;) {
    const auto header = co_await channel.receive();
    if (!header) {
      answer.closed = true;
      co_return answer;
    }
    StringSink sink;
    if (header->payload_length > 0) {
      const auto got = co_await channel.receive_payload(sink, header->payload_length);
      if (!got) {
        answer.closed = true;
        co_return answer;
      }
    }
    if ((header->flags & net::kData) != 0) {
      answer.data.insert(answer.data.end(), sink.bytes.begin(), sink.bytes.end());
      continue;
    }
    answer.error = (header->flags & net::kError) != 0;
    answer.body = std::move(sink.bytes);
    co_return answer;
  }
}

struct Ask {
  Method method = Method::kRead;
  wire::Range range;
  std::uint64_t receiver = 0;
  std::uint64_t engine = 0;
  std::string data;  // of a write
};

net::Bytes body_of(const Ask& ask) {
  flatbuffers::FlatBufferBuilder builder;
  const auto ranges = builder.CreateVectorOfStructs(&ask.range, 1);
  const wire::Attempt attempt(ask.engine, 1, 0, 1, 1);
  if (ask.method == Method::kWrite) {
    builder.Finish(wire::CreateWriteRequest(builder, &attempt, ask.receiver, ranges));
  } else {
    builder.Finish(wire::CreateReadRequest(builder, &attempt, ask.receiver, ranges));
  }
  return net::copy_of(builder);
}

Result<void> send(net::Channel& channel, Method method, std::uint32_t id, std::uint16_t flags,
                  base::ConstBuffer payload) {
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(method);
  header.request_id = id;
  header.flags = flags;
  header.deadline_us = 5'000'000;
  return channel.send(header, {&payload, 1});
}

// Greets as an engine would, then asks, over a channel of its own.
Task<Answer> greet_and_ask(os::Env env, net::Address to, Ask ask) {
  Answer answer;
  auto channel = co_await env.network.connect(to, env.now() + 5s);
  if (!channel) {
    answer.closed = true;
    co_return answer;
  }
  net::Identity self;
  self.role = "engine";
  self.name = "hostile";
  self.incarnation = static_cast<base::Incarnation>(4711);
  const auto peer = co_await net::greet(env, **channel, self, "target", env.now() + 5s);
  EXPECT_TRUE(peer);
  ask.engine = ask.engine == 0 ? 4711 : ask.engine;
  if (ask.receiver == 0) ask.receiver = static_cast<std::uint64_t>(peer->incarnation);
  const net::Bytes body = body_of(ask);
  const bool has_data = !ask.data.empty();
  EXPECT_TRUE(send(**channel, ask.method, 1, has_data ? net::kMore : 0, body));
  if (has_data) {
    EXPECT_TRUE(send(**channel, ask.method, 1, net::kData | net::kMore, base::as_bytes(ask.data)));
    EXPECT_TRUE(send(**channel, ask.method, 1, net::kData, {}));
  }
  answer = co_await read_answer(**channel);
  (*channel)->close(Error(Code::kCancelled));
  co_return answer;
}

// A plain connection to this machine; what comes back by its end, at most `most` bytes of it.
class RawPeer {
 public:
  explicit RawPeer(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // The peer may have hung up by then.
  void send(base::ConstBuffer bytes) const {
    static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  std::size_t count_until_closed() const {
    std::byte received[256];
    ssize_t got = 0;
    std::size_t total = 0;
    while ((got = ::recv(fd_, received, sizeof(received), 0)) > 0)
      total += static_cast<std::size_t>(got);
    return total;
  }

 private:
  const int fd_;
};

class HostilePeer : public testing::Test {
 protected:
  void SetUp() override {
    host_ = &rig_.host("target");
    engine_ = &rig_.start_engine(*host_, "target");
    region_ = *engine_->register_memory(open_.address(), open_.size(), "*", nullptr);
  }
  void TearDown() override {
    EXPECT_TRUE(secret_.holds(9));
    EXPECT_TRUE(open_.holds(5));
    // Alive, and of service to those who keep the rules.
    Host& other = rig_.host("honest");
    Engine& honest = rig_.start_engine(other, "honest");
    const auto target = other.run(honest.open_segment(engine_->name(), other.env().now() + 5s));
    ASSERT_TRUE(target);
    Buffer back(open_.size());
    std::vector<Entry> entries;
    entries.emplace_back(Opcode::kRead, back.span(), open_.address(), *target);
    EXPECT_EQ(other.run(move_all(honest, entries, other.env().now() + 5s)).front(), Code::kOk);
    EXPECT_TRUE(back.holds(5));
    rig_.stop_all();
  }
  Answer ask(Ask question) {
    return host_->run(greet_and_ask(host_->env(), engine_->address(), std::move(question)));
  }
  Code code_of(const Answer& answer) {
    const auto reply = net::verified<wire::TransferReply>(answer.body, "reply");
    if (!reply || !(*reply)->codes()) return Code::kOk;
    return code_from_wire((*reply)->codes()->Get(0));
  }
  std::uint64_t key() const { return static_cast<std::uint64_t>(region_.key); }
  Engine::Counters counters() { return rig_.counters(*engine_); }
  std::uint64_t refused() { return counters().refused_ranges; }

  SocketRig rig_;
  Host* host_ = nullptr;
  Engine* engine_ = nullptr;
  Buffer open_{8192, 5}, secret_{8192, 9};
  memory::Region region_;
};

TEST_F(HostilePeer, ReadsOfUnregisteredMemoryGiveZeros) {
  Ask question;
  question.range = wire::Range(secret_.address(), 4096, key(), 0, 0);
  const Answer answer = ask(question);
  EXPECT_EQ(code_of(answer), Code::kAddressNotRegistered);
  EXPECT_EQ(answer.data, net::Bytes(4096));
  EXPECT_EQ(refused(), 1u);
  question.range = wire::Range(open_.address(), 4096, key() + 1, 0, 0);
  const Answer forged = ask(question);
  EXPECT_EQ(code_of(forged), Code::kRegionKeyMismatch);
  EXPECT_EQ(forged.data, net::Bytes(4096));
  EXPECT_EQ(refused(), 2u);
}

TEST_F(HostilePeer, WritesToUnregisteredMemoryGoNowhere) {
  Ask question;
  question.method = Method::kWrite;
  question.data.assign(4096, 'x');
  question.range = wire::Range(secret_.address(), 4096, key(), 0, 0);
  EXPECT_EQ(code_of(ask(question)), Code::kAddressNotRegistered);
  question.range = wire::Range(open_.address() + 8000, 4096, key(), 0, 0);
  EXPECT_EQ(code_of(ask(question)), Code::kAddressNotRegistered);
  EXPECT_EQ(refused(), 2u);
}

TEST_F(HostilePeer, SizesNearTheEndOfNumbersAreRefused) {
  for (const Method method : {Method::kRead, Method::kWrite}) {
    for (const std::uint64_t length :
         {kHuge, ~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{65} << 20}) {
      Ask question;
      question.method = method;
      if (method == Method::kWrite) question.data.assign(100, 'x');
      question.range = wire::Range(open_.address(), length, key(), 0, 0);
      const std::uint64_t before = refused();
      const Answer answer = ask(question);
      EXPECT_TRUE(answer.error) << length;
      EXPECT_TRUE(answer.data.empty());
      EXPECT_EQ(refused(), before + 1);
    }
  }
}

TEST_F(HostilePeer, CantSpeakForOthers) {
  Ask question;
  question.method = Method::kWrite;
  question.data.assign(4096, 'x');
  question.range = wire::Range(open_.address(), 4096, key(), 0, 0);
  question.engine = 4712;
  EXPECT_TRUE(ask(question).error);
  question.engine = 4711;
  question.receiver = 99;
  EXPECT_TRUE(ask(question).error) << "meant for another life of this engine";
}

TEST_F(HostilePeer, LessOrMoreDataThanAnnouncedChangesNothingThatCounts) {
  Buffer target(8192);
  const auto region = *engine_->register_memory(target.address(), target.size(), "*", nullptr);
  Ask question;
  question.method = Method::kWrite;
  question.range =
      wire::Range(target.address(), 4096, static_cast<std::uint64_t>(region.key), 0, 0);
  for (const std::size_t size : {1u, 4095u, 4097u, 8192u}) {
    question.data.assign(size, 'x');
    EXPECT_TRUE(ask(question).error) << size;
  }
  EXPECT_TRUE(target.holds(0, 4096, 4096));
  question.data.assign(4096, 'x');
  EXPECT_FALSE(ask(question).error);
}

// Without a hello nothing is answered: the connection is closed and counted.
TEST_F(HostilePeer, NothingIsServedWithoutAHello) {
  for (const Method method :
       {Method::kRead, Method::kWrite, Method::kFence, Method::kDescribeRegions}) {
    const std::uint64_t before = counters().server.malformed;
    const RawPeer peer(engine_->address().port);
    Ask question;
    question.method = method;
    question.range = wire::Range(secret_.address(), kHuge, 0, 0, 0);
    const net::Bytes body = body_of(question);
    FrameHeader header;
    header.method = static_cast<std::uint16_t>(method);
    header.request_id = 1;
    header.deadline_us = 1'000'000;
    header.payload_length = static_cast<std::uint32_t>(body.size());
    peer.send(net::encode(header));
    peer.send(body);
    EXPECT_LE(peer.count_until_closed(), 200u) << "an error at most";
    EXPECT_EQ(counters().server.malformed, before + 1);
  }
}

// The published data plane knows no hello and no key: a header names an address, and is believed.
// Here it opens nothing, of either version, however large the size: the connection is closed
// without a byte, and counted.
TEST_F(HostilePeer, HeadersOfThePublishedFramingOpenNothing) {
  for (const std::uint8_t opcode : {0x00, 0x01, 0x80, 0x81}) {
    for (const std::uint64_t size : {std::uint64_t{4096}, kHuge, ~std::uint64_t{0}}) {
      for (const std::uint64_t address : {secret_.address(), open_.address()}) {
        const std::uint64_t before = counters().server.malformed;
        const RawPeer peer(engine_->address().port);
        std::byte header[24] = {};
        std::memcpy(header, &size, sizeof size);
        std::memcpy(header + 8, &address, sizeof address);
        header[16] = std::byte{opcode};
        peer.send(header);
        peer.send(net::Bytes(4096, std::byte{'x'}));
        EXPECT_EQ(peer.count_until_closed(), 0u);
        EXPECT_EQ(counters().server.malformed, before + 1);
      }
    }
  }
}

}  // namespace
}  // namespace mooncake::transfer
