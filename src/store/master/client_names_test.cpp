// A client's name says nothing of its id, but tells clients apart.
#include "store/master/client_names.h"

#include <gtest/gtest.h>

#include <set>

namespace mooncake::store::master {
namespace {

TEST(ClientNames, TellClientsApartAndHoldAsLongAsTheMaster) {
  const ClientNames names;
  std::set<std::uint64_t> seen;
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    const std::uint64_t name = names.of(ClientId{id});
    EXPECT_NE(name, id);
    EXPECT_TRUE(seen.insert(name).second);
    EXPECT_EQ(names.of(ClientId{id}), name);
  }
}

TEST(ClientNames, AreOtherOnesAtAnotherMaster) {
  EXPECT_NE(ClientNames().of(ClientId{1}), ClientNames().of(ClientId{1}));
}

}  // namespace
}  // namespace mooncake::store::master
