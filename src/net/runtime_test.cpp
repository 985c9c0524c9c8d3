// The reactor thread: what is posted runs in order and to the last, timers keep their time,
// connections are made and refused with the right words, and a forked child leaves everything
// alone.
#include "net/runtime.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
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

}  // namespace
}  // namespace mooncake::net
