#include "transfer/transports/tcp/server.h"

#include <array>
#include <cassert>
#include <utility>
#include <vector>

#include "transfer/access.h"
#include "transfer/transports/tcp/scatter.h"

namespace mooncake::transfer::tcp {

namespace {

// Up to this size data and reply leave together, copied at one instant.
constexpr std::uint64_t kStagedBytes = 64u << 10;

Task<Result<net::Bytes>> at_once(Result<net::Bytes> result) { co_return result; }

}  // namespace

TcpServer::TcpServer(const TransportContext& context) : context_(context) {
  net::RpcServer& server = context.server;
  server.handle(net::Method::kWrite, [this](net::ServerCall& call) { return write(call); });
  server.handle(net::Method::kRead, [this](net::ServerCall& call) { return read(call); });
  server.handle(net::Method::kFence,
                [this](net::ServerCall& call) { return at_once(fence(call)); });
  server.on_disconnect(
      [this](const net::PeerIdentity& peer) { attempts_.forget(peer.incarnation); });
}

Result<void> TcpServer::check_parties(const net::ServerCall& call,
                                      const TransferMessage& message) const {
  if (message.attempt.engine != call.peer().incarnation) {
    return fail(Code::kInvalidArgument, "an attempt of another engine than the connection's");
  }
  if (message.receiver != context_.identity.incarnation) {
    return fail(Code::kConnectionLost, "meant for another life of this engine");
  }
  return {};
}

void TcpServer::count_refusal(Code code) {
  if (is_refusal(code)) context_.counters.refused_ranges.add();
}

Task<Result<net::Bytes>> TcpServer::write(net::ServerCall& call) {
  auto decoded = decode_write(call.body());
  if (!decoded) {
    count_refusal(decoded.error().code());
    co_return fail(std::move(decoded).error());
  }
  const TransferMessage& message = *decoded;
  MC_CO_CHECK(check_parties(call, message));
  auto attempt = attempts_.begin(message.attempt);
  if (!attempt) co_return fail(std::move(attempt).error());

  std::vector<WriteAccess> accesses;
  accesses.reserve(message.ranges.size());
  std::size_t record = 0;
  for (const RemoteRange& range : message.ranges) {
    const bool guarded = range.guard != 0;
    accesses.emplace_back(context_.registry, range, guarded ? &message.records[record] : nullptr,
                          guarded ? message.keys[record] : std::string_view());
    record += guarded;
    count_refusal(accesses.back().code());
  }
  WriteSink sink(accesses, **attempt);
  auto received = co_await call.receive_data(sink, message.bytes);
  if (!received) co_return fail(std::move(received).error());
  if ((*attempt)->fenced()) co_return fail(Code::kCancelled, "this attempt has been fenced");

  std::vector<Code> codes;
  codes.reserve(accesses.size());
  for (WriteAccess& access : accesses)
    codes.push_back(access.finish());
  co_return encode_codes(codes);
}

Task<Result<net::Bytes>> TcpServer::read(net::ServerCall& call) {
  auto decoded = decode_read(call.body());
  if (!decoded) {
    count_refusal(decoded.error().code());
    co_return fail(std::move(decoded).error());
  }
  const TransferMessage& message = *decoded;
  MC_CO_CHECK(check_parties(call, message));

  std::vector<ReadAccess> accesses;
  accesses.reserve(message.ranges.size());
  for (const RemoteRange& range : message.ranges) {
    accesses.emplace_back(context_.registry, range);
    count_refusal(accesses.back().code());
  }
  if (message.bytes <= kStagedBytes) {
    stage(call, accesses);
  } else {
    ReadSource source(accesses);
    const auto sent = co_await call.send_data(source, message.bytes);
    // Most likely one of many ranges has changed under the copy; asked for again, it will say so
    // alone.
    if (!sent) co_return fail(Code::kTransferFailed, sent.error().message());
  }
  std::vector<Code> codes;
  codes.reserve(accesses.size());
  for (ReadAccess& access : accesses)
    codes.push_back(access.finish());
  co_return encode_codes(codes);
}

// All at once, as a rule; when some of it is gone, one by one. What can't be read goes as zeros.
void TcpServer::stage(net::ServerCall& call, std::span<ReadAccess> accesses) {
  static constexpr std::array<std::byte, kStagedBytes> kZeros{};
  const auto bytes_of = [](const ReadAccess& access) {
    return access.may_read() ? base::ConstBuffer(access.data(), access.length())
                             : base::ConstBuffer(kZeros).first(access.length());
  };
  std::vector<base::ConstBuffer> all;
  for (const ReadAccess& access : accesses)
    all.push_back(bytes_of(access));
  if (call.stage_data(all)) return;
  for (ReadAccess& access : accesses) {
    const base::ConstBuffer one = bytes_of(access);
    if (call.stage_data({&one, 1})) continue;
    access.lose();
    const base::ConstBuffer zeros = bytes_of(access);
    const bool staged = call.stage_data({&zeros, 1});
    assert(staged);
    static_cast<void>(staged);
  }
}

Result<net::Bytes> TcpServer::fence(net::ServerCall& call) {
  MC_TRY(const FenceMessage message, decode_fence(call.body()));
  if (message.attempt.engine != call.peer().incarnation) {
    return fail(Code::kInvalidArgument, "a fence of another engine than the connection's");
  }
  // What was meant for an earlier life can't land here.
  if (message.receiver == context_.identity.incarnation) {
    MC_TRY(const std::size_t turned_off, attempts_.fence(message.attempt));
    context_.counters.fenced_attempts.add(turned_off);
  }
  return encode_fenced();
}

}  // namespace mooncake::transfer::tcp
