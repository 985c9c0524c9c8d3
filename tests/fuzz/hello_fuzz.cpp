// Whatever a peer says before its proof: the hello ends in time, costs little memory, leaves the
// channel closed when it fails, and nobody gets in without the secret. Both sides of it.
#include <cstdint>

#include "byte_channel.h"
#include "net/handshake.h"

namespace {

using namespace mooncake;
using namespace mooncake::net;

constexpr std::int64_t kMemory = 256 << 10;

void greet_or_answer(std::span<const std::byte> input, bool mend, bool client, bool secured) {
  FuzzWorld world;
  Identity self;
  self.incarnation = static_cast<base::Incarnation>(7);
  if (secured) self.cluster_secret = "not to be guessed";
  const base::TimePoint deadline = world.executor.now() + std::chrono::seconds(5);
  ByteChannel channel(world.executor, {}, input, mend);
  MemoryLimit limit(kMemory);
  const Result<PeerIdentity> peer =
      world.executor.run(client ? greet(world.env(), channel, self, "target", deadline)
                                : receive_greeting(world.env(), channel, self, deadline));
  if (peer && (secured || peer->proven)) std::abort();
  if (!peer && !channel.closed()) std::abort();
  if (world.executor.now() > deadline) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  const bool mend = (data[0] & 1) != 0;
  const bool client = (data[0] & 2) != 0;
  greet_or_answer(input, mend, client, (data[0] & 4) != 0);
  return 0;
}
