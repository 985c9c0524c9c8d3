// Escapes, URLs and request targets: what is written is read back, and what is broken is refused.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "net/http_url.h"

namespace mooncake::net {
namespace {

TEST(HttpUrl, EncodesEverythingButUnreserved) {
  EXPECT_EQ(url_encode("mooncake/ram/10.0.0.1:12 \xc3\xa9~"),
            "mooncake%2Fram%2F10.0.0.1%3A12%20%C3%A9~");
  EXPECT_EQ(url_decode("a+b%2f").value(), "a+b/");
  for (const char* text : {"%", "%1", "abc%4", "%zz", "%%41"}) {
    EXPECT_EQ(url_decode(text).error().code(), Code::kInvalidArgument) << text;
  }
}

RC_GTEST_PROP(HttpUrlProperty, EncodedTextDecodes, (const std::string& text)) {
  RC_ASSERT(url_decode(url_encode(text)).value() == text);
}

RC_GTEST_PROP(HttpUrlProperty, EncodedQueriesAreParsed,
              (const std::map<std::string, std::string>& query)) {
  std::string target = "/p?";
  for (const auto& [name, value] : query) {
    target += url_encode(name) + "=" + url_encode(value) + "&";
  }
  HttpRequest request;
  RC_ASSERT(parse_target(target, request).has_value());
  RC_ASSERT(request.path == "/p");
  RC_ASSERT(request.query == query);
}

TEST(HttpUrl, ReadsUrls) {
  const auto url = parse_http_url("HTTP://Host:8080/metadata?key=a%2Fb#part");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->address, Address("Host", 8080));
  EXPECT_EQ(url->authority, "Host:8080");
  EXPECT_EQ(url->target, "/metadata?key=a%2Fb");
  EXPECT_EQ(parse_http_url("http://h")->target, "/");
  EXPECT_EQ(parse_http_url("http://h?x")->target, "/?x");
  EXPECT_EQ(parse_http_url("http://h")->address.port, 80);
  EXPECT_EQ(parse_http_url("http://[::1]:9/x")->address, Address("::1", 9));
}

TEST(HttpUrl, RefusesBadUrlsAndNamesThem) {
  const std::string urls[] = {"",
                              "http://",
                              "https://h/",
                              "h:80/x",
                              "http:///x",
                              "http://h:x",
                              "http://h:0/",
                              "http://u@h/",
                              "http://h/a b",
                              "http://h/\r\nX: y",
                              "ftp://h/",
                              "http://h:1:2",
                              "http://[::1/x",
                              "http://h/" + std::string(9000, 'a')};
  for (const std::string& url : urls) {
    const auto parsed = parse_http_url(url);
    ASSERT_FALSE(parsed) << url;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message().find("URL '"), std::string::npos);
  }
}

TEST(HttpUrl, ReadsTargets) {
  HttpRequest request;
  ASSERT_TRUE(parse_target("/a%20b?x=1&y=%26+%3D&x=2&&flag&=v#z", request));
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.query, (std::map<std::string, std::string>{
                               {"x", "2"}, {"y", "& ="}, {"flag", ""}, {"", "v"}}));
  ASSERT_TRUE(parse_target("http://host:1/x", request));
  EXPECT_EQ(request.path, "/x");
  EXPECT_TRUE(request.query.empty());
  for (const char* target : {"", "*", "x", "/%", "/x?a=%1", "?a", "host:80"}) {
    EXPECT_FALSE(parse_target(target, request)) << target;
  }
}

TEST(HttpParse, ReadsOneRequest) {
  const auto request = parse_http_request(
      "PUT /metadata?key=k HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET", HttpLimits{});
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->method, "PUT");
  EXPECT_EQ(request->path, "/metadata");
  EXPECT_EQ(request->body, "abc");
  const auto chunked = parse_http_request(
      "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", HttpLimits{});
  EXPECT_EQ(chunked->body, "abc");
}

TEST(HttpParse, RefusesTheRest) {
  const HttpLimits limits{.max_body = 10, .max_header = 200};
  const std::string requests[] = {
      "",
      "GET / HTTP/1.1\r\n",
      "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc",
      "GET / HTTP/1.1\r\nContent-Length: 11\r\n\r\n0123456789a",
      "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
      "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "GET / HTTP/1.1\r\nX: " + std::string(300, 'x') + "\r\n\r\n",
      "GET /%zz HTTP/1.1\r\n\r\n",
      "GET x HTTP/1.1\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "\x16\x03\x01\x02",
      "MCF1 garbage\r\n\r\n",
  };
  for (const std::string& request : requests) {
    EXPECT_FALSE(parse_http_request(request, limits)) << request;
  }
}

}  // namespace
}  // namespace mooncake::net
