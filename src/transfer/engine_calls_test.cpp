// What engines say to each other beside data: notifications come in order, behind the batch that
// they belong to, within limits; a probe tells in time whether a peer answers, and clears its
// failures; the first buffer is found; many registrations succeed or fail as one.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include "mooncake/transfer.h"
#include "os/event.h"
#include "os/local_socket.h"
#include "transfer/describe.h"
#include "transfer/engine_testing.h"

namespace mooncake {
namespace {

using namespace transfer::testing;

class EngineCalls : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(here_->register_memory(mine_.data(), mine_.size()));
    ASSERT_TRUE(there_->register_memory(theirs_.data(), theirs_.size()));
    target_ = *here_->open_segment(there_->local_name());
  }
  Result<void> notify(const std::string& name, const std::string& message = "") {
    return here_->notify(there_->local_name(), {name, message}, 10s);
  }
  TransferRequest write(std::uint64_t length) {
    return request(Opcode::kWrite, mine_.data(), target_, theirs_.data(), length);
  }

  std::unique_ptr<TransferEngine> here_ = make({}, GetParam());
  std::unique_ptr<TransferEngine> there_ = make({}, GetParam());
  std::vector<char> mine_ = std::vector<char>(1u << 20, 'a');
  std::vector<char> theirs_ = std::vector<char>(1u << 20, 'b');
  SegmentHandle target_{};
};

INSTANTIATE_TEST_SUITE_P(Paths, EngineCalls, testing::Values("tcp", "shm"),
                         [](const auto& with) { return std::string(with.param); });

TEST_P(EngineCalls, NotificationsComeInOrder) {
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(notify("n", std::to_string(i)));
  ASSERT_TRUE(here_->notify(here_->local_name(), {"self", std::string("\0\xff", 2)}));
  const auto taken = there_->take_notifications();
  ASSERT_EQ(taken.size(), 100u);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(taken[static_cast<std::size_t>(i)].message, std::to_string(i));
  EXPECT_TRUE(there_->take_notifications().empty());
  const auto own = here_->take_notifications();
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].message, std::string("\0\xff", 2));
}

TEST_P(EngineCalls, NotificationsHaveLimits) {
  EXPECT_EQ(notify(std::string(4097, 'n')).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(notify("", std::string((1u << 20) + 1, 'm')).error().code(), Code::kInvalidArgument);
  for (int i = 0; i < 16; ++i)
    ASSERT_TRUE(notify("", std::string(1u << 20, 'm')));
  EXPECT_EQ(notify("n").error().code(), Code::kBusy);
  const TransferRequest one = write(10);
  const TransferOutcome outcome = here_->transfer({&one, 1}, 5s, Notification("n", ""));
  EXPECT_TRUE(outcome.ok()) << "the data is there";
  EXPECT_EQ(outcome.notified.error().code(), Code::kBusy);
  EXPECT_EQ(there_->take_notifications().size(), 16u);
  EXPECT_TRUE(notify("n"));
}

TEST_P(EngineCalls, ABatchIsThereBeforeItsNotification) {
  for (int round = 1; round <= 20; ++round) {
    std::fill(mine_.begin(), mine_.end(), static_cast<char>(round));
    const std::uint64_t length = round % 2 ? 1000 : mine_.size();
    const auto batch = *here_->submit({write(length)}, 10s, Notification("round", "x"));
    std::vector<Notification> taken;
    while (taken.empty())
      taken = there_->take_notifications();
    ASSERT_EQ(std::string_view(theirs_.data(), length), std::string_view(mine_.data(), length));
    ASSERT_TRUE(batch->wait(10s));
    EXPECT_TRUE(batch->outcome().notified);
    const TransferRequest one = write(length);
    const TransferOutcome outcome = here_->transfer({&one, 1}, 10s, Notification("sync", "y"));
    EXPECT_TRUE(outcome.ok() && outcome.notified);
    ASSERT_EQ(there_->take_notifications().size(), 1u) << "it waits for the delivery";
  }
}

TEST_P(EngineCalls, AFailedBatchDropsItsNotification) {
  TransferRequest bad = write(10);
  bad.target_offset = 64;
  for (const auto& requests : {std::vector{write(10), bad}, std::vector<TransferRequest>{}}) {
    const TransferOutcome outcome = here_->transfer(requests, 5s, Notification("n", ""));
    EXPECT_FALSE(outcome.notified);
    const auto batch = *here_->submit(requests, 5s, Notification("n", ""));
    ASSERT_TRUE(batch->wait(5s));
    EXPECT_FALSE(batch->outcome().notified);
  }
  ASSERT_TRUE(notify("last"));
  EXPECT_EQ(there_->take_notifications().size(), 1u);
}

// A peer that says our own incarnation: nothing of what is meant for it happens to us.
TEST(EngineNames, WhoClaimsToBeUsIsFoundOut) {
  const auto engine = make();
  const auto runtime = *net::Runtime::start("impostor");
  net::RpcServer::Options options;
  options.identity.role = "engine";
  options.identity.name = "impostor";
  options.identity.incarnation = engine->engine().identity().incarnation;
  const auto impostor = net::RpcServer::create(runtime->env(), options);
  const memory::Registry nothing;
  const auto serve = [](net::RpcServer& server,
                        const memory::Registry& registry) -> base::Task<Result<net::Address>> {
    server.handle(net::Method::kDescribeRegions,
                  [&registry](net::ServerCall& call) -> base::Task<Result<net::Bytes>> {
                    co_return transfer::answer_describe(registry, call.body());
                  });
    co_return server.listen(net::Address("127.0.0.1", 0));
  };
  const auto at = *os::run_blocking(runtime->env().executor, serve(*impostor, nothing));
  ASSERT_TRUE(at);
  const std::string name = net::to_string(*at);
  const auto opened = engine->open_segment(name);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kProtocolError) << opened.error().message();
  EXPECT_FALSE(engine->notify(name, {"for", "it"}, 5s));
  EXPECT_TRUE(engine->take_notifications().empty());
  std::vector<char> mine(100, 'm'), aim(100, 'a');
  ASSERT_TRUE(engine->register_memory(aim.data(), aim.size()));
  const auto open = [](transfer::Engine& inner, std::string called,
                       net::Address where) -> base::Task<SegmentHandle> {
    co_return inner.open_address(called, where);
  };
  const SegmentHandle handle =
      *os::run_blocking(engine->runtime().env().executor, open(engine->engine(), name, *at));
  const TransferRequest write = request(Opcode::kWrite, mine.data(), handle, aim.data(), 100);
  EXPECT_FALSE(engine->transfer({&write, 1}, 5s).ok());
  EXPECT_EQ(aim, std::vector<char>(100, 'a'));
  os::run_blocking(runtime->env().executor, impostor->stop());
  // Under another of our names we are ourselves.
  const std::string alias = "localhost:" + std::to_string(engine->port());
  EXPECT_TRUE(engine->notify(alias, {"for", "us"}, 5s));
  EXPECT_EQ(engine->take_notifications().size(), 1u);
}

TEST_P(EngineCalls, AnUndeliveredNotificationDoesNotChangeTheCodes) {
  there_.reset();
  const TransferRequest local =
      request(Opcode::kRead, mine_.data(), SegmentHandle::kLocal, mine_.data() + 100, 100);
  EXPECT_TRUE(here_->transfer({&local, 1}, 5s, Notification("n", "")).notified);
  EXPECT_EQ(here_->take_notifications().size(), 1u);
}

TEST_P(EngineCalls, FirstBufferIsTheOldest) {
  const std::string name = there_->local_name();
  EXPECT_EQ(*here_->first_buffer(name), address_of(theirs_.data()));
  ASSERT_TRUE(there_->register_memory(theirs_.data() + 8192, 4096));
  EXPECT_EQ(*here_->first_buffer(name), address_of(theirs_.data()));
  ASSERT_TRUE(there_->unregister_memory(theirs_.data()));
  EXPECT_EQ(*here_->first_buffer(name), address_of(theirs_.data() + 8192));
  ASSERT_TRUE(there_->unregister_memory(theirs_.data() + 8192));
  EXPECT_EQ(here_->first_buffer(name).error().code(), Code::kAddressNotRegistered);
  EXPECT_EQ(*here_->first_buffer(here_->local_name()), address_of(mine_.data()));
  EXPECT_EQ(here_->first_buffer("nonsense").error().code(), Code::kSegmentNotFound);
}

TEST_P(EngineCalls, AProbeTellsWhetherThePeerAnswers) {
  EXPECT_TRUE(here_->probe(there_->local_name()));
  EXPECT_TRUE(here_->probe(here_->local_name()));
  EXPECT_EQ(here_->probe("nonsense").error().code(), Code::kSegmentNotFound);
  const std::string name = there_->local_name();
  there_.reset();
  for (int i = 0; i < 10; ++i) {
    const auto before = std::chrono::steady_clock::now();
    EXPECT_FALSE(here_->probe(name, 2s));
    EXPECT_LT(std::chrono::steady_clock::now() - before, 2s) << "a refusal is an answer";
  }
  EXPECT_EQ(here_->probe(name, 2s).error().code(), Code::kUnreachable);
  TransferOptions options;
  options.local_name = name;
  there_ = make(options, GetParam());
  EXPECT_TRUE(here_->probe(name, 2s)) << "another life of it";
}

TEST_P(EngineCalls, AProbeOfASilentPeerEndsAtItsDeadline) {
  SilentPeer peer;
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(here_->probe(peer.name(), 100ms).error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(here_->notify(peer.name(), {"n", ""}, 100ms).error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(here_->first_buffer(peer.name(), 100ms).error().code(), Code::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 4s);
}

TEST_P(EngineCalls, ManyRegistrationsSucceedOrFailAsOne) {
  const std::size_t before = here_->engine().registry().size();
  std::vector<char> more(64u << 10);
  std::vector<MemoryRange> ranges;
  for (std::size_t at = 0; at < more.size(); at += 4096)
    ranges.push_back({more.data() + at, 4096});
  ranges.push_back({nullptr, 4096});
  EXPECT_EQ(here_->register_memory_batch(ranges).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(here_->engine().registry().size(), before);
  ranges.pop_back();
  ASSERT_TRUE(here_->register_memory_batch(ranges, "cpu:0"));
  EXPECT_EQ(here_->engine().registry().size(), before + ranges.size());

  std::vector<void*> addresses{mine_.data() + 1};
  for (const MemoryRange& range : ranges)
    addresses.push_back(range.address);
  addresses.push_back(nullptr);
  const auto removed = here_->unregister_memory_batch(addresses);
  EXPECT_EQ(removed.error().code(), Code::kAddressNotRegistered);
  EXPECT_NE(removed.error().message().find(std::to_string(0)), std::string::npos);
  EXPECT_EQ(here_->engine().registry().size(), before) << "the others are gone";
  EXPECT_TRUE(here_->register_memory_batch({}));
  EXPECT_TRUE(here_->unregister_memory_batch({}));
}

// Knows an address at which nobody listens; asked again, it has no answer until it is told to stop.
class StuckLookup final : public transfer::SegmentLookup {
 public:
  explicit StuckLookup(os::Executor& executor) : never_(executor), stuck_(executor) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(bound_.get(), address, size), 0);
    EXPECT_EQ(::getsockname(bound_.get(), address, &size), 0);
    port_ = ntohs(at.sin_port);
  }
  base::Task<Result<net::Address>> find(std::string, base::TimePoint deadline,
                                        os::CancelToken* cancel) override {
    if (!std::exchange(asked_, true)) co_return net::Address("127.0.0.1", port_);
    stuck_.set(true);
    co_await never_.wait(deadline, cancel);
    co_return fail(os::is_cancelled(cancel) ? Code::kCancelled : Code::kDeadlineExceeded);
  }
  base::Task<Result<void>> publish(std::string, net::Address, base::TimePoint) override {
    co_return Result<void>();
  }
  base::Task<Result<void>> withdraw(std::string, base::TimePoint) override {
    co_return Result<void>();
  }
  os::Completion<bool>& stuck() { return stuck_; }

 private:
  const os::UniqueFd bound_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};  // and not listening
  std::uint16_t port_ = 0;
  bool asked_ = false;
  os::Event never_;
  os::Completion<bool> stuck_;
};

base::Task<void> notify_nobody(transfer::Engine& engine, SegmentHandle target, Code& code) {
  const auto sent = co_await engine.notify(target, {"n", ""}, engine.env().now() + 60s);
  code = sent ? Code::kOk : sent.error().code();
}

base::Task<Code> stop_while_a_look_up_is_stuck(os::Env env) {
  auto lookup = std::make_unique<StuckLookup>(env.executor);
  StuckLookup& stuck = *lookup;
  transfer::EngineOptions options;
  options.identity.incarnation = static_cast<base::Incarnation>(7);
  options.lookup = std::move(lookup);
  auto engine = *co_await transfer::Engine::start(env, std::move(options));
  EXPECT_FALSE(co_await engine->open_segment("name", env.now() + 60s));
  const SegmentHandle target = *co_await engine->known_segment("name", env.now());
  Code code = Code::kInternal;
  base::TaskGroup caller;
  caller.start(notify_nobody(*engine, target, code));
  os::Completion<bool>& asked_again = stuck.stuck();
  co_await asked_again;
  co_await engine->stop();
  co_await caller.join();
  co_return code;
}

// After a failure a name is looked up behind the caller's back; the engine's end ends that, too.
TEST(EngineLookUp, EndsWithTheEngine) {
  const auto runtime = *net::Runtime::start("stuck");
  const os::Env env = runtime->env();
  const auto before = env.now();
  EXPECT_EQ(*os::run_blocking(env.executor, stop_while_a_look_up_is_stuck(env)),
            Code::kUnreachable);
  EXPECT_LT(env.now() - before, 30s) << "the look-up had 60 s";
}

// Without descriptors the way through shared memory can't be opened, and has a pause; a probe ends
// it.
TEST(EngineProbe, ForgetsWhatHasFailed) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "checks of the sanitizer open pipes";
#endif
  const auto here = make(), there = make();
  std::vector<char> mine(4096), theirs(4096);
  ASSERT_TRUE(here->register_memory(mine.data(), mine.size()));
  ASSERT_TRUE(there->register_memory(theirs.data(), theirs.size()));
  const SegmentHandle target = *here->open_segment(there->local_name());
  const auto path = [&] {
    const auto one = request(Opcode::kRead, mine.data(), target, theirs.data(), 100);
    const TransferOutcome outcome = here->transfer({&one, 1}, 5s);
    return outcome.ok() ? outcome.bytes_by_path.begin()->first : "none";
  };
  rlimit limit{}, none{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  none.rlim_max = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(path(), "none");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(path(), "ring") << "what has failed is left alone for a while";
  ASSERT_TRUE(here->probe(there->local_name()));
  EXPECT_EQ(path(), "process_vm");
}

}  // namespace
}  // namespace mooncake
