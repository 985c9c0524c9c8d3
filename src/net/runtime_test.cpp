// The reactor: what is posted runs in order and to the last, timers keep their time, connections
// are made and refused with the right words, a forked child leaves everything alone; and blocking
// callers who come often drive the loop themselves, without anybody else being kept waiting.
#include "net/runtime.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "net/net_testing.h"

namespace mooncake::net {
namespace {

using namespace testing;

class RuntimeTest : public ::testing::Test {
 protected:
  SocketNet net;
  os::Executor& executor = net.env().executor;
};

TEST_F(RuntimeTest, WorkRunsInOrderOfPosting) {
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(executor.post([&order, i] { order.push_back(i); }));
  }
  net.runtime.reset();  // accepted work is run before the end
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(RuntimeTest, ManyThreadsPost) {
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i)
        executor.post([&ran] { ++ran; });
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  net.runtime.reset();
  EXPECT_EQ(ran, 20'000);
}

Task<bool> on_thread(os::Executor* executor) { co_return executor->on_this_thread(); }
TEST_F(RuntimeTest, KnowsItsThread) {
  EXPECT_FALSE(executor.on_this_thread());
  EXPECT_TRUE(net.run(on_thread(&executor)));
}

// Work that is posted while the executor ends is refused, and its poster can tell.
TEST_F(RuntimeTest, NothingIsAcceptedAfterTheStop) {
  bool refused = false, accepted_after = true;
  executor.post([&] {
    // The destructor below has begun when this thread sees a refusal.
    while (executor.post([] {}))
      std::this_thread::yield();
    refused = true;
    accepted_after = executor.post([] { ADD_FAILURE() << "dropped work was run"; });
  });
  net.runtime.reset();
  EXPECT_TRUE(refused);
  EXPECT_FALSE(accepted_after);
}

Task<bool> timers(os::Executor* executor) {
  std::vector<int> order;
  os::Completion<bool> done(*executor);
  const base::TimePoint begin = executor->now();
  executor->run_at(begin + milliseconds(20), [&] {
    order.push_back(2);
    done.set(true);
  });
  executor->run_at(begin + milliseconds(10), [&] { order.push_back(1); });
  const os::TimerId never = executor->run_at(begin + milliseconds(5), [&] { order.push_back(9); });
  executor->run_at(begin - seconds(1), [&] { order.push_back(0); });
  EXPECT_TRUE(executor->cancel(never));
  EXPECT_FALSE(executor->cancel(never));
  EXPECT_FALSE(executor->cancel(os::TimerId::kNone));
  co_await done;
  EXPECT_GE(executor->now() - begin, milliseconds(20));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  co_return true;
}
TEST_F(RuntimeTest, TimersRunInOrderOfTheirTimes) { net.run(timers(&executor)); }

// A task that only yields must not starve timers and sockets.
Task<bool> spin_until(os::Executor* executor) {
  bool fired = false;
  executor->run_at(executor->now() + milliseconds(5), [&] { fired = true; });
  while (!fired)
    co_await executor->yield();
  co_return true;
}
TEST_F(RuntimeTest, PostedWorkDoesNotStarveTimers) { net.run(spin_until(&executor)); }

// Callers that come one after the other, with work that is over at once, leave timers their turn.
Task<bool> at_once() { co_return true; }
Task<bool> set_timer(os::Executor* executor, std::atomic<bool>* fired) {
  executor->run_at(executor->now() + milliseconds(5), [fired] { *fired = true; });
  co_return true;
}
TEST_F(RuntimeTest, QuickCallersDoNotStarveTimers) {
  std::atomic<bool> fired{false};
  net.run(set_timer(&executor, &fired));
  const base::TimePoint limit = executor.now() + seconds(2);
  while (!fired && executor.now() < limit)
    net.run(at_once());
  EXPECT_TRUE(fired);
}

Task<bool> nobody_there(os::Env env) {
  const Address any("127.0.0.1", 0);
  Result<std::unique_ptr<Listener>> listener = env.network.listen(any);
  EXPECT_TRUE(listener);
  const Address bound = (*listener)->address();
  EXPECT_NE(bound.port, 0);

  Result<std::unique_ptr<Listener>> second = env.network.listen(bound);
  EXPECT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAddressInUse);
  EXPECT_EQ(second.error().detail(), to_string(bound));

  (*listener)->close();
  EXPECT_EQ((co_await (*listener)->accept()).error().code(), Code::kCancelled);
  Result<std::unique_ptr<Channel>> refused =
      co_await env.network.connect(bound, env.now() + seconds(5));
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnreachable);
  EXPECT_NE(refused.error().detail().find(to_string(bound)), std::string::npos);

  refused = co_await env.network.connect(bound, env.now());
  EXPECT_EQ(refused.error().code(), Code::kDeadlineExceeded);
  const Address nowhere("no-such-host.invalid", 1);
  refused = co_await env.network.connect(nowhere, env.now() + milliseconds(500));
  EXPECT_FALSE(refused);
  EXPECT_NE(refused.error().detail().find("no-such-host.invalid"), std::string::npos);
  co_return true;
}
TEST_F(RuntimeTest, ErrorsNameTheAddress) { net.run(nobody_there(net.env())); }

// A full backlog answers nothing: connecting ends at the deadline.
Task<bool> full_backlog(os::Env env) {
  const Address any("127.0.0.1", 0);
  Result<std::unique_ptr<Listener>> listener = env.network.listen(any);
  const Address bound = (*listener)->address();
  Result<std::unique_ptr<Channel>> first =
      co_await env.network.connect(bound, env.now() + seconds(5));
  EXPECT_TRUE(first);
  co_return true;
}
TEST_F(RuntimeTest, ConnectsBeforeAnybodyAccepts) { net.run(full_backlog(net.env())); }

Task<void> accept_into(Listener& listener, Result<std::unique_ptr<Channel>>& out) {
  out = co_await listener.accept();
}
Task<bool> close_while_accepting(os::Env env) {
  const Address any("127.0.0.1", 0);
  Result<std::unique_ptr<Listener>> listener = env.network.listen(any);
  Result<std::unique_ptr<Channel>> accepted = nullptr;
  base::TaskGroup group;
  group.start(accept_into(**listener, accepted));
  (*listener)->close();
  co_await group.join();
  EXPECT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code(), Code::kCancelled);
  co_return true;
}
TEST_F(RuntimeTest, ClosingEndsTheAccept) { net.run(close_while_accepting(net.env())); }

Task<bool> by_name(os::Env env, std::string host) {
  const Address at(host, 0);
  Result<std::unique_ptr<Listener>> listener = env.network.listen(at);
  if (!listener) co_return false;
  const Address to(host, (*listener)->address().port);
  Result<std::unique_ptr<Channel>> channel =
      co_await env.network.connect(to, env.now() + seconds(5));
  EXPECT_TRUE(channel) << channel.error().message();
  Result<std::unique_ptr<Channel>> accepted = co_await (*listener)->accept();
  EXPECT_TRUE(accepted);
  co_return true;
}
TEST_F(RuntimeTest, NamesAndSixesConnect) {
  EXPECT_TRUE(net.run(by_name(net.env(), "localhost")));
  EXPECT_TRUE(net.run(by_name(net.env(), "127.0.0.1")));
  if (!net.run(by_name(net.env(), "::1"))) GTEST_SKIP() << "no IPv6 on this machine";
  EXPECT_TRUE(net.run(by_name(net.env(), "::1%lo")));
}

TEST_F(RuntimeTest, AForkedChildLeavesItAlone) {
  const pid_t child = ::fork();
  if (child == 0) {
    net.runtime.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(net.run(on_thread(&executor)));  // the parent's goes on
}

// Callers who drive.

Task<std::thread::id> driver() { co_return std::this_thread::get_id(); }

// Calls until this thread is given the loop: the second call of two in a row, as a rule.
void drive_soon(SocketNet& net) {
  for (int i = 0; i < 10'000; ++i) {
    if (net.run(driver()) == std::this_thread::get_id()) return;
  }
  ADD_FAILURE() << "a caller never drove";
}

Task<bool> sleep(os::Executor* executor, base::Duration duration) {
  co_await executor->sleep_for(duration);
  co_return executor->on_this_thread();
}

Task<bool> wait_for(os::Completion<bool>* completion) { co_return co_await *completion; }

TEST_F(RuntimeTest, ACallerInARowDrives) {
  drive_soon(net);
  EXPECT_FALSE(executor.on_this_thread());
  EXPECT_TRUE(net.run(sleep(&executor, milliseconds(1))));
}

// Nobody calls any more: timers and posted work run all the same, on the reactor's own thread.
TEST_F(RuntimeTest, TheOwnThreadTakesOverWhenCallersLeave) {
  for (int i = 0; i < 20; ++i) {
    drive_soon(net);
    std::promise<std::thread::id> posted, timed;
    executor.post([&] {
      executor.run_at(executor.now() + milliseconds(1),
                      [&] { timed.set_value(std::this_thread::get_id()); });
      posted.set_value(std::this_thread::get_id());
    });
    EXPECT_NE(posted.get_future().get(), std::this_thread::get_id());
    EXPECT_NE(timed.get_future().get(), std::this_thread::get_id());
  }
}

Task<int> count(os::Executor* executor, std::atomic<int>* inside, int rounds) {
  int most = 0;
  for (int i = 0; i < rounds; ++i) {
    most = std::max(most, ++*inside);
    --*inside;
    co_await executor->yield();
  }
  co_return most;
}
TEST_F(RuntimeTest, ManyCallersAtOnceAndOneThreadInside) {
  std::atomic<int> inside{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        EXPECT_EQ(net.run(count(&executor, &inside, 1 + (i + t) % 3)), 1);
        if (i % 50 == t) net.run(sleep(&executor, std::chrono::microseconds(300)));
      }
    });
  }
  for (std::thread& caller : callers)
    caller.join();
}

// Somebody goes on with the loop at once when the driver's own work is done.
TEST_F(RuntimeTest, WhoWaitsIsNotForgottenWhenTheDriverLeaves) {
  for (int i = 0; i < 10; ++i) {
    drive_soon(net);
    std::thread longer([&] { net.run(sleep(&executor, milliseconds(20))); });
    std::thread longest([&] { net.run(sleep(&executor, milliseconds(30))); });
    net.run(sleep(&executor, milliseconds(5)));
    longer.join();
    longest.join();
  }
}

// The second caller's interval and deadline hold, though the first one drives for long.
TEST_F(RuntimeTest, ACallerGivesUpWhileAnotherDrives) {
  drive_soon(net);
  os::Completion<bool> done(executor);
  std::thread second([&] {
    int asked = 0;
    os::Completion<bool> over(executor);
    const auto answer = os::run_blocking(
        executor, wait_for(&over), milliseconds(1), [&] { return ++asked >= 3; },
        [&] { over.set(true); });
    EXPECT_EQ(answer, true);
    EXPECT_GE(asked, 3);
    executor.post([&] { done.set(true); });
  });
  net.run(wait_for(&done));
  second.join();
}

TEST_F(RuntimeTest, ADriverAsksEachInterval) {
  for (int i = 0; i < 20; ++i) {
    drive_soon(net);
    int asked = 0;
    os::Completion<bool> over(executor);
    const auto answer = os::run_blocking(
        executor, wait_for(&over), milliseconds(1), [&] { return ++asked >= 3; },
        [&] { over.set(true); });
    EXPECT_EQ(answer, true);
    EXPECT_EQ(asked, 3);
  }
}

// A server on `net`.
struct Echo {
  explicit Echo(SocketNet& net_) : net(net_) { net.run(start()); }
  ~Echo() { net.run(server->stop()); }
  Task<void> start() {
    RpcServer::Options options;
    options.identity = identity(1);
    server = RpcServer::create(net.env(), std::move(options));
    server->handle(kEcho, echo);
    const Address any("127.0.0.1", 0);
    address = *server->listen(any);
    co_return;
  }

  SocketNet& net;
  std::unique_ptr<RpcServer> server;
  Address address;
};

Task<int> ask(os::Env env, Address server, int times) {
  RpcClient::Options options;
  options.identity = identity(2);
  const auto client = RpcClient::create(env, std::move(server), std::move(options));
  int answered = 0;
  for (int i = 0; i < times; ++i) {
    CallOptions call;
    call.deadline = env.now() + seconds(10);
    const Bytes body = to_bytes("hello");
    const Result<Reply> reply = co_await client->call(kEcho, body, call);
    answered += reply && reply->body == body;
  }
  co_await client->stop();
  co_return answered;
}

TEST_F(RuntimeTest, ADriverServesPeers) {
  Echo echo(net);
  SocketNet peer;
  drive_soon(net);
  os::Completion<bool> done(executor);
  std::thread asking([&] {
    EXPECT_EQ(peer.run(ask(peer.env(), echo.address, 200)), 200);
    executor.post([&] { done.set(true); });
  });
  net.run(wait_for(&done));
  asking.join();
}

TEST_F(RuntimeTest, PeersAreServedWhileCallersComeAndGo) {
  Echo echo(net);
  SocketNet peer;
  std::atomic<bool> over{false};
  std::vector<std::thread> callers;
  for (int t = 0; t < 2; ++t) {
    callers.emplace_back([&] {
      while (!over)
        net.run(driver());
    });
  }
  EXPECT_EQ(peer.run(ask(peer.env(), echo.address, 200)), 200);
  over = true;
  for (std::thread& caller : callers)
    caller.join();
  EXPECT_EQ(peer.run(ask(peer.env(), echo.address, 20)), 20);
}

TEST_F(RuntimeTest, EndsInWhateverStateCallersLeaveIt) {
  for (int i = 0; i < 100; ++i) {
    SocketNet other;
    std::atomic<int> ran{0};
    std::vector<std::thread> callers;
    for (int t = 0; t < 3; ++t) {
      callers.emplace_back([&, t] {
        for (int n = 0; n < t * i / 10; ++n)
          other.run(driver());
        other.env().executor.post([&] { ++ran; });
      });
    }
    for (std::thread& caller : callers)
      caller.join();
    other.runtime.reset();
    EXPECT_EQ(ran, 3);
  }
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// Neither a loop that nobody uses costs anything, nor one whose driver waits for long.
TEST_F(RuntimeTest, WaitingCostsNoProcessorTime) {
  constexpr base::Duration kLong = milliseconds(300);
  drive_soon(net);
  double before = cpu_seconds();
  net.run(sleep(&executor, kLong));
  EXPECT_LT(cpu_seconds() - before, 0.01);

  std::promise<void> timed;
  before = cpu_seconds();
  executor.post([&] { executor.run_at(executor.now() + kLong, [&] { timed.set_value(); }); });
  timed.get_future().wait();
  EXPECT_LT(cpu_seconds() - before, 0.01);
}

}  // namespace
}  // namespace mooncake::net
