// A server among enemies: garbage, silence, lies about lengths, broken rules. Each costs the enemy
// its connection and is counted; nobody else notices.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "net/common_generated.h"
#include "net/net_testing.h"
#include "net/rpc_codec.h"

namespace mooncake::net {
namespace {

using namespace testing;

// A client made of a bare descriptor.
class Bare {
 public:
  Bare() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit Bare(const Address& to) : Bare() { connect(to); }
  void connect(const Address& to) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(to.port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) std::abort();
  }
  ~Bare() { ::close(fd_); }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  // The server may have hung up by then, which is no failure.
  void write(base::ConstBuffer bytes) {
    (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void finish() { ::shutdown(fd_, SHUT_WR); }
  void frame(FrameHeader header, base::ConstBuffer body = {}) {
    if (header.payload_length == 0) header.payload_length = static_cast<std::uint32_t>(body.size());
    const FrameBytes front = encode(header);
    Bytes bytes(front.begin(), front.end());
    bytes.insert(bytes.end(), body.begin(), body.end());
    write(bytes);
  }
  bool read(std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t size = ::recv(fd_, out.data(), out.size(), 0);
      if (size <= 0) return false;
      out = out.subspan(static_cast<std::size_t>(size));
    }
    return true;
  }
  Result<FrameHeader> read_frame(Bytes* body = nullptr) {
    FrameBytes bytes;
    if (!read(bytes)) return fail(Code::kConnectionLost);
    MC_TRY(const FrameHeader header, decode(bytes));
    Bytes payload(header.payload_length);
    if (!read(payload)) return fail(Code::kConnectionLost);
    if (body) *body = std::move(payload);
    return header;
  }
  // True when the server has closed, and has said nothing more.
  bool ended() {
    std::byte byte;
    return !read({&byte, 1});
  }
  void hello() {
    flatbuffers::FlatBufferBuilder hello;
    const auto nonce = hello.CreateVector(std::vector<std::uint8_t>(32, 7));
    hello.Finish(wire::CreateHello(hello, 1, 1, 0, 0, 0, 0, 99, nonce, false));
    FrameHeader header;
    header.method = static_cast<std::uint16_t>(Method::kHello);
    frame(header, std::as_bytes(std::span(hello.GetBufferPointer(), hello.GetSize())));
    ASSERT_TRUE(read_frame());
    flatbuffers::FlatBufferBuilder proof;
    proof.Finish(wire::CreateHelloProof(proof));
    header.method = static_cast<std::uint16_t>(Method::kHelloProof);
    frame(header, std::as_bytes(std::span(proof.GetBufferPointer(), proof.GetSize())));
    ASSERT_TRUE(read_frame());
  }

 private:
  const int fd_;
};

FrameHeader request(std::uint32_t id, Method method = kEcho) {
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(method);
  header.request_id = id;
  header.deadline_us = 10'000'000;
  return header;
}

class RpcHostileTest : public ::testing::Test {
 protected:
  RpcHostileTest() {
    RpcServer::Options options;
    options.identity = identity(2);
    options.limits.handshake_timeout = milliseconds(200);
    options.limits.stall_timeout = milliseconds(100);
    server = RpcServer::create(net.env(), options);
    server->handle(kEcho, echo);
    server->handle(kPut, take);
    at = net.run(listen());
  }
  ~RpcHostileTest() override {
    RpcClient::Options options;
    options.identity = identity(1);
    std::unique_ptr<RpcClient> honest = RpcClient::create(net.env(), at, options);
    EXPECT_TRUE(net.run(honest_call(honest.get())));
    net.run(server->stop());
  }
  static Task<Result<Bytes>> take(ServerCall& call) {
    Bytes bytes;
    VectorSink sink(bytes);
    MC_CO_CHECK(co_await call.receive_data(sink, 100));
    co_return bytes;
  }
  Task<Address> listen() {
    const Address any("127.0.0.1", 0);
    co_return *server->listen(any);
  }
  Task<bool> honest_call(RpcClient* honest) {
    CallOptions options;
    options.deadline = net.in(seconds(10));
    Result<Reply> reply = co_await honest->call(kEcho, base::as_bytes("still here"), options);
    co_await honest->stop();
    co_return reply.has_value();
  }
  Task<RpcServer::Counters> look() { co_return server->counters(); }
  RpcServer::Counters counters() { return net.run(look()); }

  SocketNet net;
  std::unique_ptr<RpcServer> server;
  Address at;
};

TEST_F(RpcHostileTest, GarbageIsClosedAndCounted) {
  const std::string_view lines[] = {
      "GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls client hello, more or less ........",
      "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n and then something more"};
  std::uint64_t count = 0;
  for (std::string_view line : lines) {
    Bare bare(at);
    bare.write(base::as_bytes(line));
    EXPECT_TRUE(bare.ended());
    EXPECT_EQ(counters().malformed, ++count);
  }
  base::Random random(1);
  for (int i = 0; i < 50; ++i) {
    Bytes bytes(48 + random.below(2000));
    for (std::byte& b : bytes)
      b = static_cast<std::byte>(random.next());
    Bare bare(at);
    bare.write(bytes);
    EXPECT_TRUE(bare.ended());
    EXPECT_EQ(counters().malformed, ++count);
  }
}

TEST_F(RpcHostileTest, TheMagicIsLookedAtBeforeTheFrameIsWhole) {
  Bare other(at), shorter(at);
  other.write(base::as_bytes("GET "));
  EXPECT_TRUE(other.ended());  // long before the hello's deadline, which would count as well
  EXPECT_EQ(counters().malformed, 1u);
  shorter.write(base::as_bytes("GET"));
  shorter.finish();
  EXPECT_TRUE(shorter.ended());
  Bare cut(at);
  cut.write(base::ConstBuffer(encode(request(1, Method::kHello))).first(20));
  cut.finish();
  EXPECT_TRUE(cut.ended());
  EXPECT_EQ(counters().malformed, 1u);  // lost, not malformed
}

TEST_F(RpcHostileTest, SilenceEndsWithTheHellosDeadline) {
  Bare half(at), nothing(at);
  const FrameBytes front = encode(request(1, Method::kHello));
  half.write(base::ConstBuffer(front).first(24));
  EXPECT_TRUE(half.ended());
  EXPECT_TRUE(nothing.ended());
  EXPECT_EQ(counters().malformed, 2u);
}

TEST_F(RpcHostileTest, AHelloOfGarbageIsClosed) {
  for (std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{300}, std::size_t{4096}}) {
    Bare bare(at);
    FrameHeader header = request(1, Method::kHello);
    header.payload_length = static_cast<std::uint32_t>(size);
    bare.frame(header, pattern(size));
    EXPECT_TRUE(bare.ended()) << size;
  }
  Bare large(at);
  FrameHeader header = request(1, Method::kHello);
  header.payload_length = 4097;
  large.frame(header);  // refused for its length, before a byte of it
  EXPECT_TRUE(large.ended());
  EXPECT_EQ(counters().malformed, 5u);
}

TEST_F(RpcHostileTest, RequestsBeforeTheHelloAreClosed) {
  Bare bare(at);
  bare.frame(request(1));
  EXPECT_TRUE(bare.ended());
  EXPECT_EQ(counters().requests, 0u);
}

TEST_F(RpcHostileTest, BrokenRulesCloseTheConnection) {
  const auto expect_closed = [this](const FrameHeader& header, const char* what) {
    const std::uint64_t before = counters().malformed;
    Bare bare(at);
    bare.hello();
    bare.frame(header);
    EXPECT_TRUE(bare.ended()) << what;
    EXPECT_EQ(counters().malformed, before + 1) << what;
  };
  FrameHeader header = request(1);
  header.flags = kReply;
  expect_closed(header, "a reply");
  header = request(1);
  header.flags = 64;
  expect_closed(header, "an unknown flag");
  header = request(1);
  header.version = 9;
  expect_closed(header, "another version");
  header = request(1);
  header.payload_length = kMaxControlPayload + 1;
  expect_closed(header, "a body that is too large");
  header.flags = kData;
  header.payload_length = kMaxDataPayload + 1;
  expect_closed(header, "data that is too large");
}

TEST_F(RpcHostileTest, AnOpenIdMayNotBeUsedAgain) {
  Bare bare(at);
  bare.hello();
  FrameHeader header = request(5, kPut);
  header.flags = kMore;
  bare.frame(header);
  bare.frame(header);
  EXPECT_TRUE(bare.ended());
  EXPECT_EQ(counters().malformed, 1u);
}

TEST_F(RpcHostileTest, ABodyThatStandsStillEndsTheConnection) {
  Bare bare(at);
  bare.hello();
  FrameHeader header = request(5);
  header.payload_length = 1000;
  bare.frame(header, Bytes(10));
  EXPECT_TRUE(bare.ended());
  EXPECT_EQ(counters().stalled, 1u);
}

TEST_F(RpcHostileTest, APeerThatReadsNothingIsLeftAndCounted) {
  Bare bare(at);
  bare.hello();
  const Bytes body = pattern(8u << 20);
  for (std::uint32_t id : {5, 6, 7, 8})  // more than any kernel keeps for a connection
    bare.frame(request(id), body);
  const base::TimePoint until = net.in(seconds(20));
  while (counters().connections > 0 && net.env().now() < until)
    std::this_thread::yield();
  EXPECT_EQ(counters().stalled, 1u);
  EXPECT_EQ(counters().held_bytes, 0u);
}

TEST_F(RpcHostileTest, TheSilentKeepNobodyOutWhenDescriptorsAreFew) {
  std::array<Bare, 60> silent;
  Bare honest;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(STDERR_FILENO);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + 10;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (Bare& bare : silent)
    bare.connect(at);
  honest.connect(at);
  honest.hello();
  honest.frame(request(1));
  EXPECT_TRUE(honest.read_frame());
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(counters().crowded_out, 30u);
}

TEST_F(RpcHostileTest, DataOfAnUnknownIdIsDiscarded) {
  Bare bare(at);
  bare.hello();
  FrameHeader header = request(77);
  header.flags = kData | kMore;
  header.payload_length = 50'000;
  bare.frame(header, Bytes(50'000));
  header = request(78);
  header.payload_length = 2;
  bare.frame(header, base::as_bytes("ok"));
  Bytes body;
  Result<FrameHeader> reply = bare.read_frame(&body);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->request_id, 78u);
  EXPECT_EQ(to_text(body), "ok");
}

TEST_F(RpcHostileTest, TooMuchDataFailsItsRequestAlone) {
  Bare bare(at);
  bare.hello();
  FrameHeader header = request(5, kPut);
  header.flags = kMore;
  bare.frame(header);
  header.flags = kData;
  header.payload_length = 101;
  bare.frame(header, Bytes(101));
  Bytes body;
  Result<FrameHeader> reply = bare.read_frame(&body);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->flags, kReply | kError);
  EXPECT_EQ(decode_error(body).code(), Code::kProtocolError);
  bare.frame(request(6));
  ASSERT_TRUE(bare.read_frame());
}

TEST_F(RpcHostileTest, ExpiredRequestsAreShed) {
  Bare bare(at);
  bare.hello();
  FrameHeader header = request(5);
  header.deadline_us = 0;
  bare.frame(header);
  Bytes body;
  Result<FrameHeader> reply = bare.read_frame(&body);
  ASSERT_TRUE(reply);
  EXPECT_EQ(decode_error(body).code(), Code::kDeadlineExceeded);
  // Expires while its body arrives.
  header = request(6);
  header.deadline_us = 1000;
  header.payload_length = 2;
  bare.frame(header, base::as_bytes("a"));
  const base::TimePoint until = net.in(milliseconds(5));
  while (net.env().now() < until)
    std::this_thread::yield();
  bare.write(base::as_bytes("b"));
  ASSERT_TRUE(bare.read_frame(&body));
  EXPECT_EQ(decode_error(body).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(counters().expired, 2u);
}

TEST(RpcErrors, GarbageIsNoError) {
  EXPECT_EQ(decode_error({}).code(), Code::kProtocolError);
  EXPECT_EQ(decode_error(pattern(100)).code(), Code::kProtocolError);
  for (std::uint16_t code : {0, 65000}) {
    flatbuffers::FlatBufferBuilder odd;
    odd.Finish(wire::CreateErrorReply(odd, code));
    const base::ConstBuffer bytes = std::as_bytes(std::span(odd.GetBufferPointer(), odd.GetSize()));
    EXPECT_EQ(decode_error(bytes).code(), Code::kInternal) << code;
  }
}

}  // namespace
}  // namespace mooncake::net
