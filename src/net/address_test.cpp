// parse_address() reads every published form, refuses the rest by naming the value, and is the
// inverse of to_string().
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "net/address.h"

namespace mooncake::net {
namespace {

struct Form {
  const char* text;
  const char* host;
  std::uint16_t port;
};

TEST(Address, ReadsEveryForm) {
  const Form forms[] = {
      {"10.0.0.1:15428", "10.0.0.1", 15428},
      {"node-1.rack_2:1", "node-1.rack_2", 1},
      {"localhost", "localhost", 12001},
      {"[::1]:65535", "::1", 65535},
      {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
      {"[::1]", "::1", 12001},
      {"::1", "::1", 12001},
      {"::", "::", 12001},
      {"::ffff:10.0.0.1", "::ffff:10.0.0.1", 12001},
      {"fe80::1%eth0:80", "fe80::1%eth0", 80},
      {"fe80::1%eth0", "fe80::1%eth0", 12001},
      // Without brackets there is no telling a port from a group: it is all address.
      {"fe80::1:8080", "fe80::1:8080", 12001},
      {"0.0.0.0:0", "0.0.0.0", 0},
  };
  for (const Form& form : forms) {
    const auto address = parse_address(form.text, 12001);
    ASSERT_TRUE(address) << form.text;
    EXPECT_EQ(address->host, form.host) << form.text;
    EXPECT_EQ(address->port, form.port) << form.text;
  }
}

TEST(Address, RefusesAndNamesTheValue) {
  const std::string texts[] = {
      "",
      ":80",
      "host:",
      "host:x",
      "host:65536",
      "host:-1",
      "host:+1",
      "host: 1",
      "host:1 ",
      " host:1",
      "ho st:1",
      "host:0x10",
      "host:99999999999999999999",
      "[::1",
      "[]:1",
      "[::1]80",
      "[::1]:",
      "[host]:1",
      "[1.2.3.4]:1",
      "[::1]]:1",
      "1:2:3",
      "1:2:3:4:5:6:7:8:9",
      "fe80::1%:80",
      "%eth0:80",
      "fe80::1%a b:80",
      "fe80::1%averyveryverylongscope:1",
      "h\xc3\xb6st:1",
      "host/path:1",
      "user@host:1",
      "http://host:1",
      "a,b:1",
      std::string("host\0:1", 7),
      std::string("fe80::\0:1", 9),
      "host:1\n",
      std::string(254, 'a') + ":1",
      std::string(5000, 'a'),
  };
  for (const std::string& text : texts) {
    const auto address = parse_address(text, 12001);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code(), Code::kInvalidArgument);
    EXPECT_NE(address.error().message().find("address '"), std::string::npos);
  }
  EXPECT_NE(parse_address("host:x", 1).error().message().find("host:x"), std::string::npos);
}

TEST(Address, APortIsNeededWithoutADefault) {
  for (const char* text : {"host", "[::1]", "::1", "fe80::1%eth0"}) {
    EXPECT_FALSE(parse_address(text, 0)) << text;
  }
  EXPECT_TRUE(parse_address("host:0", 0));
}

TEST(Address, Ipv6IsPrintedInBrackets) {
  EXPECT_EQ(to_string(Address("::1", 80)), "[::1]:80");
  EXPECT_EQ(to_string(Address("host", 80)), "host:80");
}

rc::Gen<std::string> host() {
  const auto label = rc::gen::nonEmpty(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("abcXYZ019-._"))));
  const auto group = rc::gen::map(rc::gen::inRange(0, 0x10000), [](int value) {
    char text[8];
    std::snprintf(text, sizeof text, "%x", static_cast<unsigned>(value));
    return std::string(text);
  });
  const auto literal =
      rc::gen::map(rc::gen::pair(rc::gen::container<std::vector<std::string>>(8, group),
                                 rc::gen::element<std::string>("", "%eth0", "%7")),
                   [](const auto& parts) {
                     std::string text = parts.first[0];
                     for (std::size_t i = 1; i < 8; ++i)
                       text += ":" + parts.first[i];
                     return text + parts.second;
                   });
  return rc::gen::oneOf(label, literal);
}

RC_GTEST_PROP(AddressProperty, PrintedAddressesReadBack, ()) {
  const Address address(*host(), *rc::gen::arbitrary<std::uint16_t>());
  const auto read = parse_address(to_string(address), 0);
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == address);
}

RC_GTEST_PROP(AddressProperty, WhateverIsAcceptedReadsBackAsItself, ()) {
  const std::string text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("a1f:.[]%-_0 :::")));
  if (const auto address = parse_address(text, 9)) {
    RC_ASSERT(parse_address(to_string(*address), 0) == *address);
  }
}

}  // namespace
}  // namespace mooncake::net
