// What processes of this host may ask of a segment's owner, in any order: guarded writes that they
// copy by themselves, pins, their ends, time that passes, processes that go. The input is a list of
// steps by two engines. Bytes that are pinned stay as they are, a write that was ended well is what
// a pin shows, and when all have gone nothing is open any more.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "fuzzed_handlers.h"
#include "memory/extent_table.h"
#include "os/sim_executor.h"
#include "transfer/copy_crew.h"
#include "transfer/requests.h"
#include "transfer/transports/shm/host_pins.h"
#include "transfer/transports/shm/host_writes.h"
#include "transfer/transports/shm/messages.h"

namespace mooncake::transfer {
namespace {

constexpr std::uint64_t kBase = 0x2000'0000'0000;
constexpr std::uint64_t kUnits = 16, kSize = kUnits * memory::kExtentUnit;
constexpr std::uint64_t kEngines[] = {7, 8};
constexpr std::uint64_t kSelf = 9;
constexpr std::string_view kKey = "key";

class Call final : public net::ServerCall {
 public:
  Call(net::Bytes body, base::Incarnation peer, base::TimePoint deadline)
      : body_(std::move(body)), deadline_(deadline) {
    peer_.incarnation = peer;
    peer_.boot_id = {1, 2};
  }
  base::ConstBuffer body() const override { return body_; }
  base::TimePoint deadline() const override { return deadline_; }
  const net::PeerIdentity& peer() const override { return peer_; }
  const net::PeerInfo& connection() const override { return info_; }
  std::uint64_t trace_id() const override { return 0; }
  base::Epoch epoch() const override { return {}; }
  base::Task<Result<void>> receive_data(net::PayloadSink&, std::size_t) override {
    co_return fail(Code::kProtocolError);
  }
  base::Task<Result<void>> send_data(net::PayloadSource&, std::size_t) override {
    co_return fail(Code::kProtocolError);
  }
  bool stage_data(base::ConstBuffers) override { return false; }

 private:
  const net::Bytes body_;
  const base::TimePoint deadline_;
  net::PeerIdentity peer_;
  net::PeerInfo info_;
};

// The rest of the input, a byte at a time; zeros behind its end.
class Input {
 public:
  explicit Input(base::ConstBuffer bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  unsigned below(unsigned limit) {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<unsigned>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value % limit;
  }
  net::Bytes some() {
    const std::size_t size = std::min<std::size_t>(below(256), bytes_.size());
    const net::Bytes taken(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size));
    bytes_ = bytes_.subspan(size);
    return taken;
  }

 private:
  base::ConstBuffer bytes_;
};

std::byte* bytes_at(std::uint64_t extent) { return reinterpret_cast<std::byte*>(kBase + extent); }

// What one input is played against.
class World {
 public:
  World() : random_(1), env_{executor_, random_, network_, os::system_disk()} {
    identity_.incarnation = static_cast<base::Incarnation>(kSelf);
    identity_.boot_id = {1, 2};
    table_ = *memory::ExtentTable::create(kSize, pinned_);
    const auto region = registry_.add(kBase, kSize, "*", memory::Permission::kReadWrite, table_);
    require(region.has_value());
    key_ = region->key;
    for (const std::uint64_t engine : kEngines)
      enter(static_cast<base::Incarnation>(engine));
  }
  ~World() {
    for (const std::uint64_t engine : kEngines)
      leave(static_cast<base::Incarnation>(engine));
    executor_.run_for(std::chrono::minutes(2));
    require(table_->writes_under_way() == 0 && pinned_->size() == 0);
  }

  void step(Input& input) {
    const unsigned what = input.below(8);
    const auto peer = static_cast<base::Incarnation>(kEngines[input.below(2)]);
    AttemptId id;
    id.engine = static_cast<base::Incarnation>(guest_ids_.at(peer));
    id.batch = input.below(4);
    switch (what) {
      case 0:
      case 1:
        begin(peer, id, some_slice(input, Opcode::kWrite));
        break;
      case 2:
        end(peer, id, input.below(4) != 0);
        break;
      case 3:
      case 4:
        pin(peer, id, some_slice(input, Opcode::kRead));
        break;
      case 5:
        unpin(peer, id);
        break;
      case 6:
        executor_.run_for(std::chrono::milliseconds(input.below(256) * 10));
        break;
      default:
        play_raw(input, peer);
    }
    check_pins();
  }

 private:
  using Attempt = std::tuple<base::Incarnation, std::uint64_t>;
  struct Seen {
    std::uint64_t extent = 0;
    net::Bytes bytes;
  };

  Slice some_slice(Input& input, Opcode opcode) {
    Slice slice;
    slice.opcode = opcode;
    slice.extent = kBase + input.below(kUnits) * memory::kExtentUnit;
    slice.length = (1 + input.below(3)) * memory::kExtentUnit - input.below(2);
    slice.remote = slice.extent;
    slice.key = key_;
    record_ = {};
    record_.version = 1 + input.below(6);
    record_.size = slice.length;
    record_.kind = memory::kPut;
    record_.key_length = kKey.size();
    slice.guard = record_.version;
    if (opcode == Opcode::kWrite) {
      slice.record = &record_;
      slice.record_key = kKey;
    } else {
      slice.guard =
          static_cast<std::uint64_t>(base::complete(base::Version::from_value(record_.version)));
    }
    return slice;
  }
  std::optional<net::Bytes> ask(net::Method method, net::Bytes body, base::Incarnation peer) {
    Call call(std::move(body), peer, env_.now() + std::chrono::seconds(2));
    auto answer = executor_.run(handlers_.handlers.at(method)(call));
    if (!answer) return std::nullopt;
    return *std::move(answer);
  }

  // The guest copies as soon as it may: all that it may is changed at once.
  void begin(base::Incarnation peer, AttemptId id, Slice slice) {
    const auto answer =
        ask(net::Method::kBeginWrite, encode_write(id, identity_.incarnation, {&slice, 1}), peer);
    if (!answer) return;
    const auto pass = apply_begun(*answer, {&slice, 1});
    require(pass.has_value());
    if (slice.code != Code::kOk || *pass == memory::Pass::kNone) return;
    std::memset(bytes_at(slice.extent - kBase), static_cast<int>(record_.version * 16 + id.batch),
                slice.length);
  }
  void end(base::Incarnation peer, AttemptId id, bool arrived) {
    ask(net::Method::kEndWrite, encode_end(id, identity_.incarnation, {arrived}), peer);
  }
  void pin(base::Incarnation peer, AttemptId id, Slice slice) {
    const auto answer =
        ask(net::Method::kPin, encode_read(id, identity_.incarnation, {&slice, 1}), peer);
    if (!answer) return;
    require(apply_codes(*answer, {&slice, 1}).has_value());
    if (slice.code != Code::kOk) return;
    const std::byte* const at = bytes_at(slice.extent - kBase);
    // One whole version, of the one that was asked for.
    require(std::all_of(at, at + slice.length, [at](std::byte byte) { return byte == *at; }));
    require(static_cast<std::uint64_t>(*at) / 16 == record_.version);
    pins_[{peer, id.batch}] = {slice.extent - kBase, net::Bytes(at, at + slice.length)};
  }
  void unpin(base::Incarnation peer, AttemptId id) {
    require(ask(net::Method::kUnpin, encode_fence(id, identity_.incarnation), peer).has_value());
    pins_.erase({peer, id.batch});
  }
  void enter(base::Incarnation peer) { guest_ids_[peer] = guests_.admit(peer); }
  void leave(base::Incarnation peer) {
    const shm::GuestId guest = guest_ids_.at(peer);
    guests_.dismiss(guest);
    writes_.end_all(guest);
    host_pins_.end_all(guest);
    std::erase_if(pins_, [peer](const auto& pin) { return std::get<0>(pin.first) == peer; });
  }
  // Anything at all, of somebody who may not have been let in; or an engine that goes and is back.
  void play_raw(Input& input, base::Incarnation peer) {
    constexpr net::Method kMethods[] = {net::Method::kBeginWrite, net::Method::kEndWrite,
                                        net::Method::kPin};
    const unsigned choice = input.below(5);
    if (choice < std::size(kMethods)) {
      const bool guest = input.below(2) != 0;
      ask(kMethods[choice], input.some(), guest ? peer : base::Incarnation{77});
    } else if (choice == 3) {
      leave(peer);
      enter(peer);
    } else {
      static_cast<void>(shm::decode_invitation(input.some()));
    }
  }
  void check_pins() const {
    for (const auto& [name, seen] : pins_)
      require(std::memcmp(bytes_at(seen.extent), seen.bytes.data(), seen.bytes.size()) == 0);
  }

  os::SimExecutor executor_{1};
  base::Random random_;
  NoNetwork network_;
  os::Env env_;
  net::Identity identity_;
  memory::Registry registry_{[next = std::uint64_t{1}]() mutable { return next++; }};
  std::shared_ptr<memory::PinnedRanges> pinned_ = memory::PinnedRanges::create();
  std::shared_ptr<memory::ExtentTable> table_;
  memory::RegionKey key_{};
  memory::ExtentRecord record_;
  Handlers handlers_;
  PeerClients peers_{env_, identity_, false};
  TransportCounters counters_;
  CopyCrew crew_{0};
  const TransportContext context_{env_,      identity_, registry_, handlers_, peers_,
                                  counters_, 1,         false,     crew_,     nullptr};
  std::shared_ptr<memory::Gate> gate_ = *memory::Gate::create();
  shm::Guests guests_{identity_};
  std::map<base::Incarnation, shm::GuestId> guest_ids_;
  shm::HostWrites writes_{context_, gate_, guests_};
  shm::HostPins host_pins_{context_, guests_};
  std::map<Attempt, Seen> pins_;
};

}  // namespace
}  // namespace mooncake::transfer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mooncake;
  static const bool mapped = [] {
    transfer::map_at(transfer::kBase, transfer::kSize);
    return true;
  }();
  static_cast<void>(mapped);
  transfer::Input input(std::as_bytes(std::span(data, size)));
  transfer::World world;
  while (!input.empty())
    world.step(input);
  return 0;
}
