// Proves that who waits for the last one to leave does, also when that one is on another thread,
// and that nobody enters behind a closed door.
#include "os/open_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace mooncake::os {
namespace {

TEST(OpenCalls, NobodyEntersAfterTheClose) {
  OpenCalls calls;
  OpenCalls::Stay first = calls.enter();
  EXPECT_TRUE(first);
  calls.close();
  EXPECT_FALSE(calls.enter());
  const OpenCalls::Stay moved = std::move(first);
  EXPECT_TRUE(moved);
  EXPECT_FALSE(first);
}

TEST(OpenCalls, TheCloserWaitsForTheLast) {
  OpenCalls calls;
  std::atomic<bool> left{false};
  std::thread caller([&left, stay = calls.enter()]() mutable {
    std::this_thread::yield();
    left = true;
    const OpenCalls::Stay last = std::move(stay);
  });
  calls.close();
  calls.wait_until_empty();
  EXPECT_TRUE(left);
  caller.join();
}

}  // namespace
}  // namespace mooncake::os
