#include "net/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/random.h"
#include "net/common_generated.h"
#include "net/message.h"
#include "net/rpc_codec.h"

namespace mooncake::net {
namespace {

constexpr std::size_t kNonceSize = 32;
constexpr std::size_t kUuidSize = 16;
constexpr std::size_t kProofSize = 32;
constexpr std::size_t kMaxHelloPayload = 4096;
constexpr std::size_t kMaxName = 255;  // role, name and target are cut to this
constexpr std::string_view kClientLabel = "mooncake client v1";
constexpr std::string_view kServerLabel = "mooncake server v1";

using Proof = std::array<std::byte, kProofSize>;

// Each part goes in with its length (8 bytes) before it, so that no two lists of parts read alike.
Proof prove(const std::string& secret, std::initializer_list<base::ConstBuffer> parts) {
  Bytes text;
  for (base::ConstBuffer part : parts) {
    const std::uint64_t length = part.size();
    const base::ConstBuffer prefix = std::as_bytes(std::span<const std::uint64_t, 1>(&length, 1));
    text.insert(text.end(), prefix.begin(), prefix.end());
    text.insert(text.end(), part.begin(), part.end());
  }
  Proof proof{};
  unsigned size = 0;
  ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(proof.data()), &size);
  return proof;
}

base::ConstBuffer as_buffer(const flatbuffers::Vector<std::uint8_t>* bytes) {
  if (!bytes) return {};
  return std::as_bytes(std::span<const std::uint8_t>(bytes->data(), bytes->size()));
}

bool proves(const flatbuffers::Vector<std::uint8_t>* shown, const Proof& expected) {
  const base::ConstBuffer bytes = as_buffer(shown);
  return bytes.size() == expected.size() &&
         CRYPTO_memcmp(bytes.data(), expected.data(), expected.size()) == 0;
}

std::string text_of(const flatbuffers::String* text) {
  return text ? text->str().substr(0, kMaxName) : std::string();
}

std::string range_of(unsigned low, unsigned high) {
  return low == high ? std::to_string(low) : fmt::format("{}..{}", low, high);
}

Error no_version(const Identity& self, unsigned low, unsigned high) {
  return Error(Code::kVersionMismatch,
               fmt::format("we speak {}, the peer {}", range_of(self.min_version, self.max_version),
                           range_of(low, high)));
}

Error unequal_security(const Identity& self) {
  return Error(Code::kAuthenticationFailed,
               self.cluster_secret.empty()
                   ? "the peer wants proof of a cluster secret, none is set here"
                   : "a cluster secret is set here, the peer has none");
}

template <typename T>
Bytes finish(flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<T> root) {
  builder.Finish(root);
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return Bytes(begin, begin + builder.GetSize());
}

auto create_bytes(flatbuffers::FlatBufferBuilder& builder, base::ConstBuffer bytes) {
  return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

auto create_text(flatbuffers::FlatBufferBuilder& builder, std::string_view text) {
  text = text.substr(0, kMaxName);
  return builder.CreateString(text.data(), text.size());
}

auto create_nonce(flatbuffers::FlatBufferBuilder& builder) {
  std::array<std::byte, kNonceSize> nonce;
  base::secure_random(nonce);
  return create_bytes(builder, nonce);
}

auto create_uuid(flatbuffers::FlatBufferBuilder& builder, const base::Uuid& id) {
  const std::uint64_t words[2] = {id.high, id.low};
  return create_bytes(builder, std::as_bytes(std::span<const std::uint64_t>(words)));
}

base::Uuid uuid_of(const flatbuffers::Vector<std::uint8_t>* bytes) {
  base::Uuid id;
  if (!bytes || bytes->size() != kUuidSize) return id;
  std::memcpy(&id.high, bytes->data(), sizeof id.high);
  std::memcpy(&id.low, bytes->data() + sizeof id.high, sizeof id.low);
  return id;
}

Bytes make_hello(const Identity& self, const std::string& target) {
  flatbuffers::FlatBufferBuilder builder(1024);
  const auto role = create_text(builder, self.role);
  const auto name = create_text(builder, self.name);
  const auto dialled = create_text(builder, target);
  const auto boot = create_uuid(builder, self.boot_id);
  const auto nonce = create_nonce(builder);
  return finish(builder,
                wire::CreateHello(builder, self.min_version, self.max_version, role, name, dialled,
                                  boot, static_cast<std::uint64_t>(self.incarnation), nonce,
                                  !self.cluster_secret.empty()));
}

Bytes make_reply(const Identity& self, std::uint8_t version) {
  flatbuffers::FlatBufferBuilder builder(1024);
  const auto name = create_text(builder, self.name);
  const auto boot = create_uuid(builder, self.boot_id);
  const auto nonce = create_nonce(builder);
  const auto rings = create_text(builder, self.rings);
  return finish(builder,
                wire::CreateHelloReply(builder, version, self.min_version, self.max_version, name,
                                       boot, static_cast<std::uint64_t>(self.incarnation), nonce,
                                       !self.cluster_secret.empty(), rings));
}

FrameHeader header_of(const Identity& self, Method method, std::uint16_t flags) {
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(method);
  header.flags = flags;
  header.request_id = method == Method::kHello ? 1 : 2;
  header.incarnation = static_cast<std::uint64_t>(self.incarnation);
  return header;
}

Result<void> send_part(Channel& channel, const Identity& self, Method method, std::uint16_t flags,
                       const Bytes& body) {
  const base::ConstBuffer part(body);
  return channel.send(header_of(self, method, flags), {&part, 1});
}

// The payload of the one frame that may come now.
Task<Result<Bytes>> receive_part(Channel& channel, Method method, std::uint16_t flags) {
  MC_CO_TRY(const FrameHeader header, co_await channel.receive());
  if (header.method != static_cast<std::uint16_t>(method) || (header.flags & ~kError) != flags ||
      ((header.flags & kError) != 0 && (flags & kReply) == 0)) {
    co_return fail(Code::kProtocolError,
                   fmt::format("hello: method {:#06x} with flags {:#x} before the hello is over",
                               header.method, header.flags));
  }
  if (header.payload_length > kMaxHelloPayload || header.header_length != kFrameHeaderSize) {
    co_return fail(Code::kProtocolError,
                   fmt::format("hello: {} bytes, at most {} are allowed before the proof",
                               header.payload_length, kMaxHelloPayload));
  }
  MC_CO_TRY(Bytes body, co_await receive_body(channel, header.payload_length));
  if ((header.flags & kError) != 0) {
    co_return fail(decode_error(body).with_context("refused by " + channel.peer().address));
  }
  co_return body;
}

Task<Result<PeerIdentity>> greet_server(Channel& channel, const Identity& self,
                                        const std::string& target) {
  const Bytes hello = make_hello(self, target);
  MC_CO_CHECK(send_part(channel, self, Method::kHello, 0, hello));
  MC_CO_TRY(const Bytes answer, co_await receive_part(channel, Method::kHello, kReply));
  const auto* reply = verified_root<wire::HelloReply>(answer);
  if (!reply || as_buffer(reply->nonce()).size() != kNonceSize || reply->incarnation() == 0) {
    co_return fail(Code::kProtocolError,
                   "hello: the reply cannot be read, or names no incarnation");
  }
  if (reply->version() < self.min_version || reply->version() > self.max_version) {
    co_return fail(no_version(self, reply->min_version(), reply->max_version()));
  }
  const bool secured = !self.cluster_secret.empty();
  if (reply->secured() != secured) co_return fail(unequal_security(self));

  Proof proof{};
  if (secured) proof = prove(self.cluster_secret, {base::as_bytes(kClientLabel), hello, answer});
  flatbuffers::FlatBufferBuilder builder(128);
  const base::ConstBuffer shown = secured ? base::ConstBuffer(proof) : base::ConstBuffer();
  const auto vector = create_bytes(builder, shown);
  const Bytes proof_part = finish(builder, wire::CreateHelloProof(builder, vector));
  MC_CO_CHECK(send_part(channel, self, Method::kHelloProof, 0, proof_part));

  MC_CO_TRY(const Bytes last, co_await receive_part(channel, Method::kHelloProof, kReply));
  const auto* done = verified_root<wire::HelloDone>(last);
  if (!done) co_return fail(Code::kProtocolError, "hello: the last reply cannot be read");
  if (secured && !proves(done->proof(), prove(self.cluster_secret, {base::as_bytes(kServerLabel),
                                                                    hello, answer, shown}))) {
    co_return fail(Code::kAuthenticationFailed,
                   channel.peer().address + " did not prove the cluster secret");
  }
  channel.set_version(reply->version());
  PeerIdentity peer;
  peer.role = "server";
  peer.name = text_of(reply->name());
  peer.boot_id = uuid_of(reply->boot_id());
  peer.incarnation = static_cast<base::Incarnation>(reply->incarnation());
  peer.version = reply->version();
  peer.proven = secured;
  peer.rings = text_of(reply->rings());
  co_return peer;
}

Task<Result<PeerIdentity>> answer_client(Channel& channel, const Identity& self,
                                         const std::function<Result<void>()>& admit,
                                         Method& stage) {
  MC_CO_TRY(const Bytes greeting, co_await receive_part(channel, Method::kHello, 0));
  const auto* hello = verified_root<wire::Hello>(greeting);
  if (!hello || as_buffer(hello->nonce()).size() != kNonceSize || hello->incarnation() == 0 ||
      hello->min_version() == 0 || hello->min_version() > hello->max_version()) {
    co_return fail(Code::kProtocolError, "hello: cannot be read, or names no incarnation");
  }
  const std::uint8_t version = std::min(self.max_version, hello->max_version());
  if (version < std::max(self.min_version, hello->min_version())) {
    co_return fail(no_version(self, hello->min_version(), hello->max_version()));
  }
  const bool secured = !self.cluster_secret.empty();
  if (hello->secured() != secured) co_return fail(unequal_security(self));
  const Bytes reply = make_reply(self, version);
  MC_CO_CHECK(send_part(channel, self, Method::kHello, kReply, reply));

  MC_CO_TRY(const Bytes answer, co_await receive_part(channel, Method::kHelloProof, 0));
  const auto* shown = verified_root<wire::HelloProof>(answer);
  if (!shown) co_return fail(Code::kProtocolError, "hello: the proof cannot be read");
  stage = Method::kHelloProof;
  Proof proof{};
  if (secured) {
    if (!proves(shown->proof(),
                prove(self.cluster_secret, {base::as_bytes(kClientLabel), greeting, reply}))) {
      co_return fail(Code::kAuthenticationFailed, "the cluster secrets differ");
    }
    proof = prove(self.cluster_secret,
                  {base::as_bytes(kServerLabel), greeting, reply, as_buffer(shown->proof())});
  }
  if (admit) {
    MC_CO_CHECK(admit());
  }
  flatbuffers::FlatBufferBuilder builder(128);
  const auto vector =
      create_bytes(builder, secured ? base::ConstBuffer(proof) : base::ConstBuffer());
  const Bytes done = finish(builder, wire::CreateHelloDone(builder, vector));
  MC_CO_CHECK(send_part(channel, self, Method::kHelloProof, kReply, done));
  channel.set_version(version);
  PeerIdentity peer;
  peer.role = text_of(hello->role());
  peer.name = text_of(hello->name());
  peer.boot_id = uuid_of(hello->boot_id());
  peer.incarnation = static_cast<base::Incarnation>(hello->incarnation());
  peer.version = version;
  peer.proven = secured;
  co_return peer;
}

// Closes the channel at the deadline, which ends whatever the hello waits for.
class HelloTimer {
 public:
  HelloTimer(os::Executor& executor, Channel& channel, base::TimePoint deadline)
      : executor_(executor), timer_(executor.run_at(deadline, [&channel] {
          channel.close(Error(Code::kDeadlineExceeded, "hello: not over in time"));
        })) {}
  ~HelloTimer() { executor_.cancel(timer_); }
  HelloTimer(const HelloTimer&) = delete;
  HelloTimer& operator=(const HelloTimer&) = delete;

 private:
  os::Executor& executor_;
  const os::TimerId timer_;
};

// A peer that speaks our language is told why; garbage gets no answer. Returns when it has left.
Task<void> refuse(Channel& channel, const Identity& self, Method stage, const Error& error) {
  const Bytes body = encode_error(error);
  const base::ConstBuffer part(body);
  BufferSource source({&part, 1});
  (void)co_await channel.send_from(header_of(self, stage, kReply | kError), source, body.size());
}

}  // namespace

Task<Result<PeerIdentity>> greet(os::Env env, Channel& channel, const Identity& self,
                                 const std::string& target, base::TimePoint deadline) {
  HelloTimer timer(env.executor, channel, deadline);
  Result<PeerIdentity> peer = co_await greet_server(channel, self, target);
  if (!peer) channel.close(peer.error());
  co_return peer;
}

Task<Result<PeerIdentity>> receive_greeting(os::Env env, Channel& channel, const Identity& self,
                                            base::TimePoint deadline,
                                            std::function<Result<void>()> admit) {
  HelloTimer timer(env.executor, channel, deadline);
  Method stage = Method::kHello;
  Result<PeerIdentity> peer = co_await answer_client(channel, self, admit, stage);
  if (peer) co_return peer;
  const Code code = peer.error().code();
  if (code == Code::kAuthenticationFailed || code == Code::kVersionMismatch ||
      code == Code::kBusy) {
    co_await refuse(channel, self, stage, peer.error());
  }
  channel.close(peer.error());
  co_return peer;
}

}  // namespace mooncake::net
