// Proves what a process of this host can do that speaks to an engine's Unix socket without being an
// engine: nothing, and it keeps nobody else out.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "memory/extent_table.h"
#include "memory/pool.h"
#include "mooncake/transfer.h"
#include "net/address.h"
#include "net/rpc.h"
#include "net/runtime.h"
#include "os/local_socket.h"
#include "os/run_blocking.h"
#include "transfer/engine.h"
#include "transfer/requests.h"
#include "transfer/transports/shm/host_peer.h"
#include "transfer/transports/shm/messages.h"

namespace mooncake::transfer::shm {
namespace {

using namespace std::chrono_literals;
using os::LocalSocket;

std::unique_ptr<TransferEngine> make() {
  TransferOptions options;
  options.path = "shm";
  auto engine = TransferEngine::create(options);
  EXPECT_TRUE(engine) << engine.error().message();
  return *std::move(engine);
}

// A peer that has said hello over TCP, from this boot or, as it says, from another.
class Caller {
 public:
  explicit Caller(std::uint16_t port, bool same_boot = true,
                  base::Incarnation incarnation = base::Incarnation{base::secure_random() | 1})
      : incarnation_(incarnation), runtime_(*net::Runtime::start("caller")) {
    net::RpcClient::Options options;
    options.identity.role = "engine";
    options.identity.name = "caller";
    options.identity.boot_id = same_boot ? base::boot_id() : base::Uuid{1, 2};
    options.identity.incarnation = incarnation_;
    client_ = net::RpcClient::create(runtime_->env(), net::Address("127.0.0.1", port),
                                     std::move(options));
  }
  ~Caller() { os::run_blocking(runtime_->env().executor, client_->stop()); }

  Result<Invitation> ask() {
    MC_TRY(const net::Reply reply, call(net::Method::kOpenHost, encode_open_host()));
    return decode_invitation(reply.body);
  }
  Result<net::Reply> call(net::Method method, const net::Bytes& body) {
    net::CallOptions options;
    options.deadline = runtime_->env().now() + 5s;
    return *os::run_blocking(runtime_->env().executor, client_->call(method, body, options));
  }
  base::Incarnation incarnation() const { return incarnation_; }

 private:
  const base::Incarnation incarnation_;
  std::unique_ptr<net::Runtime> runtime_;
  std::unique_ptr<net::RpcClient> client_;
};

// The next message, or nothing when the other side has closed.
std::optional<LocalSocket::Message> next(const LocalSocket& socket) {
  for (;;) {
    auto message = socket.receive();
    if (message) return *std::move(message);
    if (message.error().code() != Code::kBusy) return std::nullopt;
    pollfd waiting{socket.fd(), POLLIN, 0};
    if (::poll(&waiting, 1, 10'000) != 1) {
      ADD_FAILURE() << "neither an answer nor an end";
      return std::nullopt;
    }
  }
}

Hello hello_with(const Token& token) {
  Hello hello;
  hello.token = token;
  return hello;
}

TEST(ShmHostile, OnlyTheInvitedAreWelcome) {
  const auto engine = make();
  Caller caller(engine->port());
  const auto invitation = caller.ask();
  ASSERT_TRUE(invitation) << invitation.error().message();
  {
    auto guess = LocalSocket::connect(invitation->socket);
    ASSERT_TRUE(guess);
    Token wrong = invitation->token;
    wrong[0] ^= 1;
    ASSERT_TRUE(guess->send(bytes_of(hello_with(wrong))));
    EXPECT_FALSE(next(*guess));
  }
  auto invited = LocalSocket::connect(invitation->socket);
  ASSERT_TRUE(invited);
  ASSERT_TRUE(invited->send(bytes_of(hello_with(invitation->token))));
  const auto welcome = next(*invited);
  ASSERT_TRUE(welcome);
  EXPECT_TRUE(read<Welcome>(welcome->bytes));
  EXPECT_EQ(welcome->fds.size(), 2u);
  // The token was good once.
  auto again = LocalSocket::connect(invitation->socket);
  ASSERT_TRUE(again);
  ASSERT_TRUE(again->send(bytes_of(hello_with(invitation->token))));
  EXPECT_FALSE(next(*again));
}

TEST(ShmHostile, PeersOfAnotherBootAreNotInvited) {
  const auto engine = make();
  Caller caller(engine->port(), false);
  const auto invitation = caller.ask();
  ASSERT_FALSE(invitation);
  EXPECT_EQ(invitation.error().code(), Code::kNotSupported);
}

TEST(ShmHostile, GarbageEndsTheSessionAndNothingElse) {
  const auto engine = make();
  Caller caller(engine->port());
  const std::string name = caller.ask()->socket;
  Hello other_version;
  other_version.header.version = 2;
  const AskPool too_early;
  const std::vector<std::vector<std::byte>> messages = {
      std::vector<std::byte>(1),
      std::vector<std::byte>(16),
      std::vector<std::byte>(512),
      {bytes_of(other_version).begin(), bytes_of(other_version).end()},
      {bytes_of(too_early).begin(), bytes_of(too_early).end()}};
  for (const auto& message : messages) {
    auto socket = LocalSocket::connect(name);
    ASSERT_TRUE(socket);
    ASSERT_TRUE(socket->send(message));
    EXPECT_FALSE(next(*socket)) << message.size() << " bytes";
  }
  // Descriptors that nobody asked for are closed, not kept.
  const auto invitation = caller.ask();
  auto socket = LocalSocket::connect(name);
  ASSERT_TRUE(socket->send(bytes_of(hello_with(invitation->token)), std::array{0, 1, 2}));
  EXPECT_TRUE(next(*socket));
}

TEST(ShmHostile, TheWelcomeGetNoOtherMemoryThanPools) {
  const auto engine = make();
  ASSERT_TRUE(engine->allocate_memory(1u << 20));
  Caller caller(engine->port());
  const auto invitation = caller.ask();
  auto socket = LocalSocket::connect(invitation->socket);
  ASSERT_TRUE(socket);
  ASSERT_TRUE(socket->send(bytes_of(hello_with(invitation->token))));
  ASSERT_TRUE(next(*socket));
  for (const std::uint64_t pool : {std::uint64_t{0}, std::uint64_t{77}, ~std::uint64_t{0}}) {
    AskPool ask;
    ask.pool = pool;
    ASSERT_TRUE(socket->send(bytes_of(ask)));
    const auto answer = next(*socket);
    ASSERT_TRUE(answer);
    const auto given = read<PoolGiven>(answer->bytes);
    ASSERT_TRUE(given);
    EXPECT_EQ(given->pool, pool);
    EXPECT_EQ(given->size, 0u);
    EXPECT_TRUE(answer->fds.empty());
  }
  AskPool ask;
  ask.pool = 1;
  ASSERT_TRUE(socket->send(bytes_of(ask)));
  const auto answer = next(*socket);
  ASSERT_TRUE(answer);
  EXPECT_EQ(read<PoolGiven>(answer->bytes)->size, 1u << 20);
  EXPECT_EQ(answer->fds.size(), 1u);
}

TEST(ShmHostile, TheSilentKeepNobodyOut) {
  const auto engine = make();
  Caller caller(engine->port());
  const std::string name = caller.ask()->socket;
  std::vector<LocalSocket> silent;
  for (int i = 0; i < 200; ++i) {
    auto socket = LocalSocket::connect(name);
    if (socket) silent.push_back(*std::move(socket));
  }
  const auto other = make();
  std::vector<char> mine(4096, 'm');
  void* const theirs = engine->allocate_memory(1u << 20).value_or(nullptr);
  ASSERT_NE(theirs, nullptr);
  ASSERT_TRUE(other->register_memory(mine.data(), mine.size()));
  const auto target = other->open_segment(engine->local_name());
  ASSERT_TRUE(target);
  TransferRequest write;
  write.opcode = Opcode::kWrite;
  write.source = mine.data();
  write.target = *target;
  write.target_offset = reinterpret_cast<std::uint64_t>(theirs);
  write.length = mine.size();
  const TransferOutcome outcome = other->transfer({&write, 1}, 5s);
  EXPECT_TRUE(outcome.ok()) << outcome.status.error().message();
  EXPECT_EQ(static_cast<char*>(theirs)[4095], 'm');
}

// A guarded write is begun for processes that the gate can keep out, and for nobody else.
TEST(ShmHostile, OnlyWhoStandsAtTheGateBeginsAWrite) {
  const auto engine = make();
  Caller caller(engine->port()), stranger(engine->port());
  const auto invitation = caller.ask();
  auto socket = LocalSocket::connect(invitation->socket);
  ASSERT_TRUE(socket);
  ASSERT_TRUE(socket->send(bytes_of(hello_with(invitation->token))));
  const auto answer = next(*socket);
  ASSERT_TRUE(answer);
  const auto welcome = read<Welcome>(answer->bytes);
  const base::Incarnation owner{welcome->incarnation};

  memory::ExtentRecord record;
  record.version = base::Version(base::Epoch{1}, 1).value();
  record.size = 4096;
  record.key_length = 1;
  record.kind = memory::RecordKind::kPut;
  Slice slice;
  slice.opcode = Opcode::kWrite;
  slice.remote = slice.extent = 1u << 20;
  slice.length = record.size;
  slice.guard = record.version;
  slice.record = &record;
  slice.record_key = "k";
  const auto begin_by = [&](Caller& who) {
    const AttemptId id{base::Incarnation{welcome->guest}, 1, 1, 1};
    return who.call(net::Method::kBeginWrite, encode_write(id, owner, {&slice, 1}));
  };
  const auto refused = begin_by(stranger);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNotSupported);
  const auto heard = begin_by(caller);
  ASSERT_TRUE(heard) << heard.error().message();
  EXPECT_EQ(*apply_begun(heard->body, {&slice, 1}), memory::Pass::kNone);
  EXPECT_EQ(slice.code, Code::kAddressNotRegistered);
}

// Guarded memory of an engine, with one object in it, and a process that stands at its gate.
class Pinning : public testing::Test {
 protected:
  static constexpr std::uint64_t kSegment = 64u << 10, kSize = 5000;
  static constexpr auto kEpoch = static_cast<base::Epoch>(1);

  void SetUp() override {
    pool_ = *memory::Pool::create({.size = kSegment});
    const base::Version version(kEpoch, 5);
    table_ = *memory::ExtentTable::create(kSegment);
    ASSERT_TRUE(table_->commit(begin(version)->ticket));
    const auto base = reinterpret_cast<std::uint64_t>(pool_->data());
    const auto region = engine_->engine().register_memory(base, kSegment, "*", table_);
    ASSERT_TRUE(region) << region.error().message();
    slice_.remote = slice_.extent = base;
    slice_.length = kSize;
    slice_.key = region->key;
    slice_.guard = static_cast<std::uint64_t>(base::complete(version));
    enter();
  }
  void enter() {
    const auto invitation = caller_.ask();
    ASSERT_TRUE(invitation);
    auto socket = LocalSocket::connect(invitation->socket);
    ASSERT_TRUE(socket);
    ASSERT_TRUE(socket->send(bytes_of(hello_with(invitation->token))));
    const auto answer = next(*socket);
    ASSERT_TRUE(answer);
    const auto welcome = read<Welcome>(answer->bytes);
    owner_ = base::Incarnation{welcome->incarnation};
    guest_ = base::Incarnation{welcome->guest};
    socket_ = *std::move(socket);
  }
  Result<memory::ExtentTable::BeginOutcome> begin(base::Version version) {
    memory::ExtentRecord record;
    record.version = version.value();
    record.size = kSize;
    record.key_length = 1;
    record.kind = memory::RecordKind::kPut;
    return table_->begin_write(0, 0, kSize, record, "k");
  }
  // Of a younger write, on the engine's thread.
  Code write() {
    const auto ask = [](Pinning* self) -> Task<Code> {
      auto begun = self->begin(base::Version(kEpoch, 6));
      if (!begun) co_return begun.error().code();
      co_return Code::kOk;
    };
    return *os::run_blocking(engine_->runtime().env().executor, ask(this));
  }
  AttemptId attempt(std::uint64_t batch) const { return {guest_, batch, 0, 0}; }
  // The codes of the ranges, or of the call.
  std::vector<Code> pin_by(Caller& who, AttemptId id, std::vector<Slice> slices) {
    const auto reply = who.call(net::Method::kPin, encode_read(id, owner_, slices));
    if (!reply) return {reply.error().code()};
    EXPECT_TRUE(apply_codes(reply->body, slices));
    std::vector<Code> codes;
    for (const Slice& slice : slices)
      codes.push_back(slice.code);
    return codes;
  }
  Code pin(std::uint64_t batch, const Slice& slice) {
    return pin_by(caller_, attempt(batch), {slice}).front();
  }
  Code unpin(std::uint64_t batch) {
    const auto reply = caller_.call(net::Method::kUnpin, encode_fence(attempt(batch), owner_));
    return reply ? Code::kOk : reply.error().code();
  }

  const std::unique_ptr<TransferEngine> engine_ = make();
  Caller caller_{engine_->port()};
  std::unique_ptr<memory::Pool> pool_;
  std::shared_ptr<memory::ExtentTable> table_;
  LocalSocket socket_;
  base::Incarnation owner_{}, guest_{};
  Slice slice_;
};

TEST_F(Pinning, IsForWhoStandsAtTheGate) {
  Caller stranger(engine_->port());
  const std::vector<Code> refused{Code::kNotSupported};
  EXPECT_EQ(pin_by(stranger, {stranger.incarnation(), 1, 0, 0}, {slice_}), refused);
  EXPECT_EQ(pin_by(stranger, attempt(1), {slice_}), refused);
  EXPECT_EQ(pin_by(caller_, {caller_.incarnation(), 1, 0, 0}, {slice_}), refused);
  EXPECT_EQ(pin(1, slice_), Code::kOk);
  EXPECT_EQ(pin(1, slice_), Code::kInvalidArgument) << "that attempt is there";
  EXPECT_EQ(write(), Code::kBusy);
  const auto stolen = stranger.call(net::Method::kUnpin, encode_fence(attempt(1), owner_));
  EXPECT_EQ(stolen.error().code(), Code::kNotSupported);
  EXPECT_EQ(write(), Code::kBusy);
  EXPECT_EQ(unpin(1), Code::kOk);
  EXPECT_EQ(write(), Code::kOk);
}

// An incarnation is told to whoever dials its engine.
TEST_F(Pinning, IsNotEndedByOneThatOnlySaysTheName) {
  EXPECT_EQ(pin(1, slice_), Code::kOk);
  Caller namesake(engine_->port(), true, caller_.incarnation());
  const AttemptId id{caller_.incarnation(), 1, 0, 0};
  EXPECT_FALSE(namesake.call(net::Method::kUnpin, encode_fence(id, owner_)));
  EXPECT_EQ(write(), Code::kBusy);
}

TEST_F(Pinning, TakesNoInvitationsFromOthers) {
  Caller greedy(engine_->port()), other(engine_->port());
  for (int i = 0; i < 2000; ++i)
    ASSERT_TRUE(greedy.ask());
  EXPECT_TRUE(other.ask());
}

TEST_F(Pinning, IsOfWhatMayBeReadAndNothingElse) {
  const auto changed = [&](auto change) {
    Slice slice = slice_;
    change(slice);
    return slice;
  };
  const std::vector<Slice> slices{
      changed([](Slice& s) { s.guard -= 2; }),
      changed([](Slice& s) { s.guard |= 1; }),
      changed([](Slice& s) { s.length = ~std::uint64_t{0} / 8; }),
      changed([](Slice& s) { s.extent -= 4096; }),
      changed([](Slice& s) { s.length = kSize + 1; }),
      changed([](Slice& s) { s.key = static_cast<memory::RegionKey>(7); }),
  };
  const auto codes = pin_by(caller_, attempt(1), slices);
  EXPECT_EQ(codes, (std::vector<Code>{Code::kGenerationMismatch, Code::kGenerationMismatch,
                                      Code::kAddressNotRegistered, Code::kGenerationMismatch,
                                      Code::kGenerationMismatch, Code::kRegionKeyMismatch}));
  EXPECT_EQ(pin(2, changed([](Slice& s) { s.guard = 0; })), Code::kInvalidArgument);
  EXPECT_EQ(write(), Code::kOk) << "nothing is pinned";
}

TEST_F(Pinning, IsBounded) {
  const std::vector<Slice> many(2048, slice_);
  const std::vector<Code> all(many.size(), Code::kOk);
  EXPECT_EQ(pin_by(caller_, attempt(1), many), all);
  EXPECT_EQ(pin_by(caller_, attempt(2), many), all);
  EXPECT_EQ(pin(3, slice_), Code::kBusy);
  EXPECT_EQ(unpin(1), Code::kOk);
  EXPECT_EQ(pin(3, slice_), Code::kOk);
  EXPECT_EQ(unpin(2), Code::kOk);
  EXPECT_EQ(write(), Code::kBusy);
  EXPECT_EQ(unpin(3), Code::kOk);
  EXPECT_EQ(write(), Code::kOk);
}

// A pin whose answer was lost is ended; it may arrive after that.
TEST_F(Pinning, ThatWasEndedBeforeItCameIsRefused) {
  EXPECT_EQ(unpin(1), Code::kOk);
  EXPECT_EQ(pin(1, slice_), Code::kInvalidArgument);
  EXPECT_EQ(pin(2, slice_), Code::kOk);
}

TEST_F(Pinning, EndsWithTheSessionOfTheReader) {
  EXPECT_EQ(pin(1, slice_), Code::kOk);
  LocalSocket first = std::move(socket_);
  enter();
  socket_ = {};
  EXPECT_EQ(write(), Code::kBusy) << "another session's end changes nothing";
  first = {};
  const auto end = std::chrono::steady_clock::now() + 10s;
  Code code = write();
  while (code == Code::kBusy && std::chrono::steady_clock::now() < end)
    code = write();
  EXPECT_EQ(code, Code::kOk);
}

// However many pools a peer offers: few enough are mapped that this process has mappings left, and
// those of a peer that has gone count as memory for as long as a copy holds them.
TEST(MappedPool, CountsAndIsCounted) {
  using base::MemoryUse;
  const auto budget = std::make_shared<base::Budget>(1u << 20);
  const auto account = std::make_shared<MappingAccount>(budget, 2);
  const auto open = [&] {
    auto memory = os::OwnedMapping::create("test", 8192, os::OwnedMapping::PeersMay::kWrite);
    auto mapped =
        os::SharedMapping::map(memory->fd(), memory->size(), os::SharedMapping::Use::kReadWrite);
    return MappedPool::open(account, *std::move(mapped));
  };
  auto one = open(), two = open();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(budget->used(MemoryUse::kMappings), 16384u);
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_EQ(open().error().code(), Code::kBusy);
  auto held = *one;
  (*one)->bury();
  (*one)->bury();
  one->reset();
  EXPECT_EQ(budget->used(MemoryUse::kMappings), 8192u);
  EXPECT_EQ(budget->used(MemoryUse::kDeadMappings), 8192u);
  EXPECT_EQ(budget->used(), 8192u);
  held.reset();
  two->reset();
  EXPECT_EQ(budget->used(MemoryUse::kDeadMappings) + budget->used(MemoryUse::kMappings), 0u);
  EXPECT_TRUE(open());
}

}  // namespace
}  // namespace mooncake::transfer::shm
