// Interfaces have addresses, and one of them leads to each peer that can be reached.
#include "net/interface.h"

#include <gtest/gtest.h>

namespace mooncake::net {
namespace {

TEST(Interface, TheLoopbackHasItsAddress) {
  EXPECT_EQ(interface_address("lo").value_or(""), "127.0.0.1");
}

TEST(Interface, AWrongNameIsAnsweredWithTheRightOnes) {
  const auto none = interface_address("nothing0");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(none.error().detail().starts_with("'nothing0' is no interface"))
      << none.error().message();
  EXPECT_NE(none.error().detail().find("lo"), std::string_view::npos);
  EXPECT_FALSE(interface_address("lo\x1b"));
}

TEST(Interface, TheWayToThisHostIsTheLoopback) {
  EXPECT_EQ(address_towards({"127.0.0.1", 50051}).value_or(""), "127.0.0.1");
  EXPECT_EQ(address_towards({"localhost", 50051}).value_or("").empty(), false);
}

TEST(Interface, NoWayNamesThePeer) {
  const auto nowhere = address_towards({"no such host", 7});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code(), Code::kUnreachable);
  EXPECT_NE(nowhere.error().detail().find("no such host:7"), std::string_view::npos)
      << nowhere.error().message();
}

}  // namespace
}  // namespace mooncake::net
