// What other engines may send to the transfer methods, well-framed and malformed, into the handlers
// themselves. Two regions lie between pages that aren't mapped; whatever a request names, its
// handler must end, write nowhere else, and show nothing but the region's bytes or zeros. The first
// byte chooses the method; keys and addresses of the regions are fixed, so that inputs can reach
// them.
#include <algorithm>

#include "fuzzed_handlers.h"
#include "memory/extent_table.h"
#include "os/sim_executor.h"
#include "transfer/copy_crew.h"
#include "transfer/describe.h"
#include "transfer/inbox.h"
#include "transfer/requests.h"
#include "transfer/transports/tcp/server.h"

namespace mooncake::transfer {
namespace {

constexpr std::uint64_t kPlain = 0x2000'0000'0000, kGuarded = 0x2000'0010'0000;
constexpr std::uint64_t kSize = 64u << 10;
constexpr std::uint64_t kPeer = 7, kSelf = 9;

class Call final : public net::ServerCall {
 public:
  Call(base::ConstBuffer body, bool abandons)
      : body_(body.begin(), body.end()), abandons_(abandons) {
    peer_.incarnation = static_cast<base::Incarnation>(kPeer);
  }
  base::ConstBuffer body() const override { return body_; }
  base::TimePoint deadline() const override { return base::TimePoint::max(); }
  const net::PeerIdentity& peer() const override { return peer_; }
  const net::PeerInfo& connection() const override { return info_; }
  std::uint64_t trace_id() const override { return 0; }
  base::Epoch epoch() const override { return {}; }
  Task<Result<void>> receive_data(net::PayloadSink& sink, std::size_t size) override {
    for (std::size_t left = abandons_ ? size / 2 : size; left > 0;) {
      const auto place = sink.prepare(left);
      require(!place.empty() && place.size() <= left);
      std::fill(place.begin(), place.end(), std::byte{0x55});
      sink.commit(place.size());
      left -= place.size();
    }
    if (abandons_) co_return fail(Code::kCancelled);
    co_return Result<void>();
  }
  Task<Result<void>> send_data(net::PayloadSource& source, std::size_t size) override {
    for (std::size_t left = size; left > 0;) {
      require(source.live());
      const auto piece = source.next(left);
      require(!piece.empty() && piece.size() <= left);
      left -= piece.size();
      look_at(piece);
    }
    co_return Result<void>();
  }
  bool stage_data(base::ConstBuffers data) override {
    for (const base::ConstBuffer& piece : data)
      look_at(piece);
    return true;
  }

 private:
  // Nothing but what our writes and the start have left in the regions.
  static void look_at(base::ConstBuffer piece) {
    require(std::all_of(piece.begin(), piece.end(), [](std::byte byte) {
      return byte == std::byte{0} || byte == std::byte{0x55};
    }));
  }
  net::Bytes body_;
  const bool abandons_;
  net::PeerIdentity peer_;
  net::PeerInfo info_;
};

// What one input is played against.
class World {
 public:
  World() : random_(1), env_{executor_, random_, network_, os::system_disk()} {
    identity_.incarnation = static_cast<base::Incarnation>(kSelf);
    table_ = *memory::ExtentTable::create(kSize);
    require(registry_.add(kPlain, kSize).has_value());
    require(
        registry_.add(kGuarded, kSize, "*", memory::Permission::kReadWrite, table_).has_value());
  }
  void play(net::Method method, base::ConstBuffer body, bool abandons) {
    Call call(body, abandons);
    static_cast<void>(executor_.run(handlers_.handlers.at(method)(call)));
    require(table_->writes_under_way() == 0);
  }
  memory::Registry& registry() { return registry_; }

 private:
  os::SimExecutor executor_{1};
  base::Random random_;
  NoNetwork network_;
  os::Env env_;
  net::Identity identity_;
  memory::Registry registry_{[next = std::uint64_t{1}]() mutable { return next++; }};
  std::shared_ptr<memory::ExtentTable> table_;
  Handlers handlers_;
  PeerClients peers_{env_, identity_, false};
  TransportCounters counters_;
  CopyCrew crew_{0};
  tcp::TcpServer server_{TransportContext{env_, identity_, registry_, handlers_, peers_, counters_,
                                          1, false, crew_, nullptr}};
};

void play(std::uint8_t choice, base::ConstBuffer body) {
  World world;
  const bool abandons = (choice & 0x80) != 0;
  switch (choice & 0x7F) {
    case 0:
      // Twice: joins, repeats and fences have something to meet.
      world.play(net::Method::kWrite, body, abandons);
      return world.play(net::Method::kWrite, body, false);
    case 1:
      return world.play(net::Method::kRead, body, abandons);
    case 2:
      world.play(net::Method::kFence, body, abandons);
      return world.play(net::Method::kFence, body, abandons);
    case 3:
      static_cast<void>(answer_describe(world.registry(), body));
      return;
    case 4: {
      std::vector<Slice> slices(3);
      static_cast<void>(apply_codes(body, slices));
      static_cast<void>(apply_begun(body, slices));
      static_cast<void>(decode_end(body));
      static_cast<void>(decode_pin(body));
      return;
    }
    case 6: {
      Inbox inbox;
      const bool answered = answer_notify(inbox, body).has_value();
      const auto taken = inbox.take_all();
      require(taken.size() == (answered ? 1u : 0u));
      require(taken.empty() || check_notification(taken.front()).has_value());
      return;
    }
    default:
      static_cast<void>(decode_described(body, 3));
      static_cast<void>(decode_first_address(body));
  }
}

}  // namespace
}  // namespace mooncake::transfer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mooncake;
  static const bool mapped = [] {
    transfer::map_at(transfer::kPlain, transfer::kSize);
    transfer::map_at(transfer::kGuarded, transfer::kSize);
    return true;
  }();
  static_cast<void>(mapped);
  if (size == 0) return 0;
  const net::Bytes body(reinterpret_cast<const std::byte*>(data) + 1,
                        reinterpret_cast<const std::byte*>(data) + size);
  transfer::play(data[0], body);
  return 0;
}
