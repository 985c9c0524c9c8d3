// The hello: who may come in, in which version, and that nobody gets in by guessing, replaying,
// reflecting or changing a byte on the way.
#include "net/handshake.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <optional>
#include <string>

#include "net/common_generated.h"
#include "net/net_testing.h"
#include "net/rpc_codec.h"

namespace mooncake::net {
namespace {

using namespace testing;

using Outcome = std::optional<Result<PeerIdentity>>;

Task<void> greet_into(os::Env env, Channel& channel, Identity self, Outcome& out) {
  out.emplace(co_await greet(env, channel, self, "server:1", env.now() + seconds(5)));
}
Task<void> receive_into(os::Env env, Channel& channel, Identity self, Outcome& out) {
  out.emplace(co_await receive_greeting(env, channel, self, env.now() + seconds(5)));
}

// Flips one bit in the payload of its first frame.
class Tampering final : public WrappedChannel {
 public:
  Tampering(std::unique_ptr<Channel> inner_, std::size_t byte)
      : WrappedChannel(std::move(inner_)), byte_(byte) {}
  Result<void> send(FrameHeader header, base::ConstBuffers payload) override {
    Bytes bytes(payload[0].begin(), payload[0].end());
    if (first_size == 0) {
      first_size = bytes.size();
      bytes[byte_] ^= std::byte{1};
    }
    const base::ConstBuffer part(bytes);
    return inner->send(header, {&part, 1});
  }

  std::size_t first_size = 0;

 private:
  const std::size_t byte_;
};

class HandshakeTest : public ::testing::Test {
 protected:
  HandshakeTest() { std::tie(client, server) = make_channel_pair(net.executor); }

  void meet(Identity at_client, Identity at_server) {
    net.executor.post([&] {
      group.start(receive_into(net.env(), *server, at_server, server_saw));
      group.start(greet_into(net.env(), *client, at_client, client_saw));
    });
    client_saw.reset();
    server_saw.reset();
    net.executor.run_until([&] { return client_saw && server_saw; }, net.in(seconds(60)));
    ASSERT_TRUE(client_saw && server_saw);
  }
  Code client_code() const { return *client_saw ? Code::kOk : client_saw->error().code(); }
  Code server_code() const { return *server_saw ? Code::kOk : server_saw->error().code(); }

  SimNet net;
  std::unique_ptr<Channel> client, server;
  base::TaskGroup group;
  Outcome client_saw, server_saw;
};

TEST_F(HandshakeTest, BothLearnWhoTheOtherIs) {
  meet(identity(1), identity(2));
  ASSERT_EQ(client_code(), Code::kOk);
  ASSERT_EQ(server_code(), Code::kOk);
  EXPECT_EQ((*client_saw)->name, "node 2");
  EXPECT_EQ((*client_saw)->incarnation, base::Incarnation{2});
  EXPECT_EQ((*server_saw)->role, "test");
  EXPECT_EQ((*server_saw)->boot_id, (base::Uuid{1, 2}));
  EXPECT_FALSE((*client_saw)->proven);
  EXPECT_FALSE((*server_saw)->proven);
  EXPECT_FALSE(client->closed());
}

TEST_F(HandshakeTest, TheSecretIsProvenBothWays) {
  meet(identity(1, "s3cret"), identity(2, "s3cret"));
  ASSERT_EQ(client_code(), Code::kOk);
  ASSERT_EQ(server_code(), Code::kOk);
  EXPECT_TRUE((*client_saw)->proven);
  EXPECT_TRUE((*server_saw)->proven);
}

TEST_F(HandshakeTest, AWrongSecretIsRefused) {
  meet(identity(1, "wrong"), identity(2, "right"));
  EXPECT_EQ(client_code(), Code::kAuthenticationFailed);
  EXPECT_EQ(server_code(), Code::kAuthenticationFailed);
  EXPECT_NE(client_saw->error().detail().find("differ"), std::string::npos);
  EXPECT_TRUE(client->closed());
  EXPECT_TRUE(server->closed());
}

TEST_F(HandshakeTest, AClientWithoutTheSecretIsRefused) {
  meet(identity(1), identity(2, "right"));
  EXPECT_EQ(client_code(), Code::kAuthenticationFailed);
  EXPECT_EQ(server_code(), Code::kAuthenticationFailed);
}

TEST_F(HandshakeTest, AServerWithoutTheSecretIsRefused) {
  meet(identity(1, "right"), identity(2));
  EXPECT_EQ(client_code(), Code::kAuthenticationFailed);
  EXPECT_EQ(server_code(), Code::kAuthenticationFailed);
}

TEST_F(HandshakeTest, TheHighestCommonVersionIsChosen) {
  struct Row {
    std::uint8_t client_min, client_max, server_min, server_max, chosen;
  };
  for (const Row& row : {Row{1, 1, 1, 2, 1}, Row{1, 2, 1, 1, 1}, Row{1, 2, 1, 2, 2},
                         Row{2, 3, 1, 2, 2}, Row{1, 2, 2, 3, 2}, Row{1, 3, 2, 2, 2}}) {
    std::tie(client, server) = make_channel_pair(net.executor);
    Identity a = identity(1), b = identity(2);
    std::tie(a.min_version, a.max_version) = std::pair(row.client_min, row.client_max);
    std::tie(b.min_version, b.max_version) = std::pair(row.server_min, row.server_max);
    meet(a, b);
    ASSERT_EQ(client_code(), Code::kOk) << client_saw->error().message();
    EXPECT_EQ((*client_saw)->version, row.chosen);
    EXPECT_EQ((*server_saw)->version, row.chosen);
  }
}

TEST_F(HandshakeTest, NoCommonVersionIsRefusedNamingBothRanges) {
  Identity a = identity(1), b = identity(2);
  std::tie(a.min_version, a.max_version) = std::pair(3, 4);
  std::tie(b.min_version, b.max_version) = std::pair(1, 2);
  meet(a, b);
  EXPECT_EQ(server_code(), Code::kVersionMismatch);
  EXPECT_EQ(client_code(), Code::kVersionMismatch);
  EXPECT_NE(client_saw->error().detail().find("1..2"), std::string::npos);
  EXPECT_NE(client_saw->error().detail().find("3..4"), std::string::npos);
}

TEST_F(HandshakeTest, SilenceEndsAtTheDeadlineOnBothSides) {
  std::unique_ptr<Channel> c2, s2;
  std::tie(c2, s2) = make_channel_pair(net.executor);
  net.executor.post([&] {
    group.start(receive_into(net.env(), *server, identity(2), server_saw));
    group.start(greet_into(net.env(), *c2, identity(1), client_saw));
  });
  net.executor.run_for(seconds(6));
  ASSERT_TRUE(client_saw && server_saw);
  EXPECT_EQ(client_code(), Code::kDeadlineExceeded);
  EXPECT_EQ(server_code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(server->closed());
}

TEST_F(HandshakeTest, EveryChangedByteOfTheHelloIsNoticed) {
  for (bool at_client : {true, false}) {
    std::size_t size = 1;
    for (std::size_t byte = 0; byte < size; ++byte) {
      std::tie(client, server) = make_channel_pair(net.executor);
      std::unique_ptr<Channel>& side = at_client ? client : server;
      auto tampering = std::make_unique<Tampering>(std::move(side), byte);
      Tampering& wire = *tampering;
      side = std::move(tampering);
      meet(identity(1, "s"), identity(2, "s"));
      size = wire.first_size;
      ASSERT_NE(client_code(), Code::kOk) << "byte " << byte;
      ASSERT_NE(server_code(), Code::kOk) << "byte " << byte;
    }
    EXPECT_GT(size, 100u);
  }
}

// An attacker's side, frame by frame.
Task<Result<Bytes>> next_body(Channel& channel) {
  MC_CO_TRY(const FrameHeader header, co_await channel.receive());
  co_return co_await receive_body(channel, header.payload_length);
}

void send_frame(Channel& channel, Method method, std::uint16_t flags, const Bytes& body) {
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(method);
  header.flags = flags;
  const base::ConstBuffer part(body);
  EXPECT_TRUE(channel.send(header, {&part, 1}));
}

Bytes built(flatbuffers::FlatBufferBuilder& builder) {
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return Bytes(begin, begin + builder.GetSize());
}

// Shows the client its own proof as the server's.
Task<void> reflect(Channel& channel) {
  Result<Bytes> hello = co_await next_body(channel);
  const auto* read = flatbuffers::GetRoot<wire::Hello>(hello->data());
  flatbuffers::FlatBufferBuilder builder;
  const auto name = builder.CreateString("mirror");
  const auto nonce = builder.CreateVector(read->nonce()->data(), read->nonce()->size());
  builder.Finish(wire::CreateHelloReply(builder, 1, 1, 1, name, 0, 77, nonce, true));
  send_frame(channel, Method::kHello, kReply, built(builder));
  Result<Bytes> proof = co_await next_body(channel);
  send_frame(channel, Method::kHelloProof, kReply, *proof);  // the tables have one shape
}

TEST_F(HandshakeTest, AReflectedProofIsRefused) {
  net.executor.post([&] {
    group.start(reflect(*server));
    group.start(greet_into(net.env(), *client, identity(1, "s"), client_saw));
  });
  net.executor.run_for(seconds(6));
  ASSERT_TRUE(client_saw);
  EXPECT_EQ(client_code(), Code::kAuthenticationFailed);
}

// Sends what an honest client once sent.
Task<void> replay(Channel& channel, const std::vector<Bytes>& frames) {
  send_frame(channel, Method::kHello, 0, frames[0]);
  Result<Bytes> reply = co_await next_body(channel);
  EXPECT_TRUE(reply);
  send_frame(channel, Method::kHelloProof, 0, frames[1]);
}

Task<void> forward(Channel& from, Channel& to, std::vector<Bytes>& seen, int count) {
  for (int i = 0; i < count; ++i) {
    Result<FrameHeader> header = co_await from.receive();
    Result<Bytes> body = co_await receive_body(from, header->payload_length);
    seen.push_back(*body);
    send_frame(to, static_cast<Method>(header->method), header->flags, *body);
  }
}

TEST_F(HandshakeTest, AReplayedHelloIsRefused) {
  auto [mine, theirs] = make_channel_pair(net.executor);
  std::vector<Bytes> from_client, from_server;
  net.executor.post([&, a = theirs.get(), c = mine.get()] {
    group.start(forward(*a, *client, from_client, 2));
    group.start(forward(*client, *a, from_server, 2));
    group.start(receive_into(net.env(), *server, identity(2, "s"), server_saw));
    group.start(greet_into(net.env(), *c, identity(1, "s"), client_saw));
  });
  net.executor.run_for(seconds(6));
  ASSERT_EQ(server_code(), Code::kOk);  // relayed as it was, it is good
  ASSERT_EQ(from_client.size(), 2u);

  auto [again, victim] = make_channel_pair(net.executor);
  net.executor.post([&, a = again.get(), v = victim.get()] {
    group.start(receive_into(net.env(), *v, identity(2, "s"), server_saw));
    group.start(replay(*a, from_client));
  });
  net.executor.run_for(seconds(6));
  EXPECT_EQ(server_code(), Code::kAuthenticationFailed);
}

// The proof as docs/formats.md says it, computed by somebody who has only read that page.
Bytes proof_by_the_book(const std::string& secret, const std::vector<Bytes>& parts) {
  Bytes text;
  for (const Bytes& part : parts) {
    for (int i = 0; i < 8; ++i)
      text.push_back(static_cast<std::byte>(part.size() >> (8 * i)));
    text.insert(text.end(), part.begin(), part.end());
  }
  Bytes proof(32);
  unsigned size = 0;
  ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(proof.data()), &size);
  return proof;
}

TEST_F(HandshakeTest, ProofsAreAsTheFormatSays) {
  auto [mine, theirs] = make_channel_pair(net.executor);
  std::vector<Bytes> from_client, from_server;
  net.executor.post([&, a = theirs.get(), c = mine.get()] {
    group.start(forward(*a, *client, from_client, 2));
    group.start(forward(*client, *a, from_server, 2));
    group.start(receive_into(net.env(), *server, identity(2, "s"), server_saw));
    group.start(greet_into(net.env(), *c, identity(1, "s"), client_saw));
  });
  net.executor.run_for(seconds(6));
  ASSERT_EQ(server_code(), Code::kOk);
  const auto shown = [](const flatbuffers::Vector<std::uint8_t>* bytes) {
    const auto all = std::as_bytes(std::span(bytes->data(), bytes->size()));
    return Bytes(all.begin(), all.end());
  };
  const Bytes client_proof =
      shown(flatbuffers::GetRoot<wire::HelloProof>(from_client[1].data())->proof());
  EXPECT_EQ(client_proof, proof_by_the_book("s", {to_bytes("mooncake client v1"), from_client[0],
                                                  from_server[0]}));
  EXPECT_EQ(shown(flatbuffers::GetRoot<wire::HelloDone>(from_server[1].data())->proof()),
            proof_by_the_book("s", {to_bytes("mooncake server v1"), from_client[0], from_server[0],
                                    client_proof}));
}

TEST_F(HandshakeTest, MoreThanFourKilobytesBeforeTheProofAreRefused) {
  send_frame(*client, Method::kHello, 0, Bytes(4097));
  net.executor.post(
      [&] { group.start(receive_into(net.env(), *server, identity(2), server_saw)); });
  net.executor.run_ready();
  ASSERT_TRUE(server_saw);
  EXPECT_EQ(server_code(), Code::kProtocolError);
  EXPECT_NE(server_saw->error().detail().find("4097"), std::string::npos);
}

TEST_F(HandshakeTest, OtherMethodsBeforeTheHelloAreRefused) {
  send_frame(*client, kEcho, 0, Bytes(4));
  net.executor.post(
      [&] { group.start(receive_into(net.env(), *server, identity(2), server_saw)); });
  net.executor.run_ready();
  ASSERT_TRUE(server_saw);
  EXPECT_EQ(server_code(), Code::kProtocolError);
}

TEST_F(HandshakeTest, LongNamesAreCutNotRefused) {
  Identity a = identity(1);
  a.name.assign(10'000, 'n');
  meet(a, identity(2));
  ASSERT_EQ(server_code(), Code::kOk);
  EXPECT_EQ((*server_saw)->name, std::string(255, 'n'));
}

}  // namespace
}  // namespace mooncake::net
