// Any bytes on a greeted connection: the server neither crashes nor takes more memory than its
// limits allow, every handler ends, and stop() returns.
#include <cstdint>

#include "byte_channel.h"
#include "net/common_generated.h"
#include "net/rpc.h"

namespace {

using namespace mooncake;
using namespace mooncake::net;

constexpr std::int64_t kMemory = 2 << 20;
constexpr std::size_t kMaxBodies = 64 << 10;

void append_frame(std::vector<std::byte>& out, Method method,
                  const flatbuffers::FlatBufferBuilder& body) {
  FrameHeader header;
  header.method = static_cast<std::uint16_t>(method);
  header.payload_length = body.GetSize();
  const FrameBytes front = encode(header);
  out.insert(out.end(), front.begin(), front.end());
  const auto bytes = std::as_bytes(std::span(body.GetBufferPointer(), body.GetSize()));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> hello() {
  std::vector<std::byte> bytes;
  flatbuffers::FlatBufferBuilder first, second;
  const auto nonce = first.CreateVector(std::vector<std::uint8_t>(32, 7));
  first.Finish(wire::CreateHello(first, 1, 1, 0, 0, 0, 0, 99, nonce, false));
  append_frame(bytes, Method::kHello, first);
  second.Finish(wire::CreateHelloProof(second));
  append_frame(bytes, Method::kHelloProof, second);
  return bytes;
}

Task<Result<Bytes>> take(ServerCall& call) {
  Bytes room(4096);
  struct Sink final : PayloadSink {
    explicit Sink(Bytes& bytes_) : bytes(bytes_) {}
    std::span<std::byte> prepare(std::size_t remaining) override {
      if (filled == bytes.size()) std::abort();
      return std::span<std::byte>(bytes).subspan(filled,
                                                 std::min(remaining, bytes.size() - filled));
    }
    void commit(std::size_t size) override { filled += size; }
    Bytes& bytes;
    std::size_t filled = 0;
  } sink(room);
  const std::size_t size = std::min(room.size(), call.body().size() * 16);
  MC_CO_CHECK(co_await call.receive_data(sink, size));
  if (sink.filled != size) std::abort();
  co_return room;
}

Task<Result<Bytes>> give(ServerCall& call) {
  const base::ConstBuffer body = call.body();
  BufferSource source({&body, 1});
  MC_CO_CHECK(co_await call.send_data(source, body.size()));
  static_cast<void>(call.stage_data({&body, 1}));
  co_return Bytes();
}

Task<Result<Bytes>> echo(ServerCall& call) {
  co_return Bytes(call.body().begin(), call.body().end());
}

Task<Result<Bytes>> wait(os::Executor* executor) {
  os::Completion<bool> over(*executor);
  executor->run_at(executor->now() + std::chrono::milliseconds(5), [&over] { over.set(true); });
  co_await over;
  co_return fail(Code::kNoSpace, "none");
}

Task<bool> stop(RpcServer& server) {
  co_await server.stop();
  co_return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  FuzzWorld world;
  base::Epoch epoch{3};
  RpcServer::Options options;
  options.identity.incarnation = static_cast<base::Incarnation>(7);
  options.limits.max_bytes_per_connection = kMaxBodies;
  options.limits.max_requests_per_connection = 8;
  options.epoch = &epoch;
  const auto server = RpcServer::create(world.env(), options);
  server->handle(static_cast<Method>(1), echo);
  server->handle(static_cast<Method>(2), take);
  server->handle(static_cast<Method>(3), give);
  server->handle(static_cast<Method>(4),
                 [executor = &world.executor](ServerCall&) { return wait(executor); });
  MemoryLimit limit(kMemory);
  world.executor.post([&] {
    server->serve(std::make_unique<ByteChannel>(world.executor, hello(),
                                                std::as_bytes(std::span(data, size)).subspan(1),
                                                (data[0] & 1) != 0));
  });
  world.executor.run_for(std::chrono::hours(1));
  if (server->counters().connections != 0) std::abort();
  world.executor.run(stop(*server));
  return 0;
}
