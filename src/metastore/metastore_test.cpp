// open_metastore() finds a back end by its scheme, and tells what it knows when there is none.
#include <gtest/gtest.h>

#include "metastore/metastore.h"
#include "net/sim_network.h"

namespace mooncake::metastore {
namespace {

struct Open : testing::Test {
  os::SimExecutor executor{1};
  os::SimHost host{executor};
  base::Random random{1};
  net::SimWorld world{executor, random};
  os::FakeDisk disk;
  os::Env env{executor, random, world.host("a", host), disk};
};

TEST_F(Open, UnknownSchemesListTheKnownOnes) {
  for (const char* url : {"", "etcd://h:1", "memory", "://x", "https://h/metadata"}) {
    const auto store = open_metastore(env, url);
    ASSERT_FALSE(store) << url;
    EXPECT_EQ(store.error().code(), Code::kInvalidArgument);
    EXPECT_NE(store.error().message().find("http://, memory://"), std::string::npos);
  }
}

TEST_F(Open, BadUrlsAreRefused) {
  for (const char* url : {"memory://", "http://", "http://h:99999/metadata", "http://h/a#b c"}) {
    EXPECT_EQ(open_metastore(env, url).error().code(), Code::kInvalidArgument) << url;
  }
  EXPECT_TRUE(open_metastore(env, "MEMORY://x"));
  EXPECT_TRUE(open_metastore(env, "http://h:80/metadata"));
}

TEST_F(Open, TheMemoryBackEndRunsInSimulations) {
  const base::TimePoint deadline = executor.now() + std::chrono::seconds(1);
  auto one = open_metastore(env, "memory://cluster").value();
  auto two = open_metastore(env, "memory://cluster").value();
  auto other = open_metastore(env, "memory://elsewhere").value();
  ASSERT_TRUE(executor.run(one->put("k", "v", deadline)));
  EXPECT_EQ(executor.run(two->get("k", deadline)).value(), "v");
  EXPECT_EQ(executor.run(other->get("k", deadline)).error().code(), Code::kObjectNotFound);
  // The map goes with its last user.
  one.reset();
  two.reset();
  one = open_metastore(env, "memory://cluster").value();
  EXPECT_EQ(executor.run(one->get("k", deadline)).error().code(), Code::kObjectNotFound);
}

}  // namespace
}  // namespace mooncake::metastore
