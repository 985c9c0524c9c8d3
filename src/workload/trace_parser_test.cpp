// The line parser takes exactly what a general JSON library takes and our rules allow, with the
// same values (compared on randomly broken lines), and its errors name field and value.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "workload/trace.h"

namespace mooncake::workload {
namespace {

constexpr char kLine[] =
    R"({"timestamp": 27, "input_length": 6758, "output_length": 500, "hash_ids": [0, 18446744073709551615]})";

std::string error_of(std::string_view line, const TraceLimits& limits = {}) {
  const Result<Request> request = parse_request(line, limits);
  if (request) {
    return "none";
  }
  EXPECT_EQ(request.error().code(), Code::kInvalidArgument);
  return std::string(request.error().detail());
}

// kLine with one field replaced.
std::string with(std::string_view field, std::string_view value) {
  const std::string timestamp(field == "timestamp" ? value : "0");
  const std::string input(field == "input_length" ? value : "1024");
  const std::string output(field == "output_length" ? value : "1");
  const std::string ids(field == "hash_ids" ? value : "[0, 1]");
  return R"({"timestamp": )" + timestamp + R"(, "input_length": )" + input +
         R"(, "output_length": )" + output + R"(, "hash_ids": )" + ids + "}";
}

TEST(ParseRequest, TakesThePublishedForm) {
  const Result<Request> request = parse_request(kLine);
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->timestamp_ms, 27u);
  EXPECT_EQ(request->input_length, 6758u);
  EXPECT_EQ(request->output_length, 500u);
  EXPECT_EQ(request->hash_ids, (std::vector<std::uint64_t>{0, UINT64_MAX}));
}

TEST(ParseRequest, TakesOtherKeysOrderAndSpacing) {
  const Result<Request> request = parse_request(
      " {\"hash_ids\":[1 ,\t2],\"x\":{\"a\":[{},[],null,true,false,-0.5e+3,\"\\u00e9\\\"}\"]},"
      "\"output_length\" : 0 , \"timestamp\":1, \"input_length\":9} \r");
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->hash_ids, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(request->input_length, 9u);
}

TEST(ParseRequest, NamesFieldAndValueOfAWrongOne) {
  const std::string range = "must be a whole number from 0 to 18446744073709551615, is ";
  EXPECT_EQ(error_of(with("timestamp", "-1")), "field timestamp: " + range + "'-1'");
  EXPECT_EQ(error_of(with("timestamp", "1.5")), "field timestamp: " + range + "'1.5'");
  EXPECT_EQ(error_of(with("timestamp", "1e3")), "field timestamp: " + range + "'1e3'");
  EXPECT_EQ(error_of(with("timestamp", "007")), "field timestamp: " + range + "'007'");
  EXPECT_EQ(error_of(with("output_length", "18446744073709551616")),
            "field output_length: " + range + "'18446744073709551616'");
  EXPECT_EQ(error_of(with("output_length", "null")), "field output_length: " + range + "'null'");
  EXPECT_EQ(error_of(with("input_length", "0")), "field input_length: must be at least 1, is '0'");
  EXPECT_EQ(error_of(with("hash_ids", "7")), "field hash_ids: must be a list, is '7'");
  EXPECT_EQ(error_of(with("hash_ids", "[]")), "field hash_ids: must have at least one id, is '[]'");
  EXPECT_EQ(error_of(with("hash_ids", "[0, 1, \"a\"]")), "field hash_ids[2]: " + range + "'\"a\"'");
  EXPECT_EQ(error_of(with("hash_ids", "[0, ]")), "field hash_ids[1]: " + range + "']'");
  EXPECT_EQ(error_of(R"({"timestamp": 0})"), "field input_length: is missing");
  EXPECT_EQ(error_of(R"({"timestamp": 0, "timestamp": 4})"),
            "field timestamp: comes twice, the second time as '4'");
}

TEST(ParseRequest, NamesTheColumnOfBrokenSyntax) {
  EXPECT_EQ(error_of(""), "column 1: expected '{', found the end of the line");
  EXPECT_EQ(error_of("[1]"), "column 1: expected '{', found '[1'");
  EXPECT_EQ(error_of(std::string(kLine) + "x"), "column " + std::to_string(sizeof(kLine)) +
                                                    ": expected the end of the line, found 'x'");
  EXPECT_NE(error_of(std::string_view(kLine).substr(0, sizeof(kLine) - 2)), "none");
  EXPECT_NE(error_of("{\"a\x01\": 1}"), "none");
  EXPECT_NE(error_of(R"({"a": "\x"})"), "none");
}

TEST(ParseRequest, KeepsItsLimits) {
  EXPECT_EQ(error_of(kLine, {.ids_per_request = 2}), "none");
  EXPECT_EQ(error_of(kLine, {.ids_per_request = 1}),
            "field hash_ids[1]: is one more than the limit of 1, with '18446744073709551615'");
  EXPECT_EQ(error_of(kLine, {.line_bytes = 10}), "line is longer than the limit of 10 bytes");
  // Depth is limited too: the parser recurses over values that it skips.
  EXPECT_NE(error_of(R"({"x": )" + std::string(100'000, '[')).find("nested deeper than 32"),
            std::string::npos);
}

// What a general library makes of the line: nullopt when it, or one of our rules, refuses.
std::optional<Request> reference(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return std::nullopt;
  }
  for (const char* key : {"timestamp", "input_length", "output_length"}) {
    if (!json.contains(key) || !json[key].is_number_unsigned()) {
      return std::nullopt;
    }
  }
  if (!json.contains("hash_ids") || !json["hash_ids"].is_array() || json["hash_ids"].empty() ||
      json["input_length"] == 0) {
    return std::nullopt;
  }
  Request request{json["timestamp"], json["input_length"], json["output_length"], {}};
  for (const nlohmann::json& id : json["hash_ids"]) {
    if (!id.is_number_unsigned()) {
      return std::nullopt;
    }
    request.hash_ids.push_back(id);
  }
  return request;
}

RC_GTEST_PROP(ParseRequest, AgreesWithAGeneralLibraryOnBrokenLines, ()) {
  std::string line = R"({"timestamp": 0, "note": {"a": [1.5e-3, "\n", null], "b": true}, )"
                     R"("input_length": 640, "output_length": 12, "hash_ids": [0, 10, 9]})";
  const int changes = *rc::gen::inRange(0, 3);
  for (int i = 0; i < changes; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, line.size());
    const char c = *rc::gen::elementOf(std::string("{}[],:\"\\0123456789-+.eE atrufnlsx"));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        line[at] = c;
        break;
      case 1:
        line.insert(at, 1, c);
        break;
      default:
        line.erase(at, 1);
    }
  }
  const Result<Request> request = parse_request(line);
  const std::optional<Request> expected = reference(line);
  // Only a key that comes twice is refused by us alone.
  const bool twice =
      !request && request.error().detail().find("comes twice") != std::string_view::npos;
  RC_PRE(!twice);
  RC_ASSERT(request.has_value() == expected.has_value());
  if (expected) {
    RC_ASSERT(*request == *expected);
  }
}

RC_GTEST_PROP(ParseRequest, ReadsWhatAppendLineWrites, ()) {
  const Request request{
      *rc::gen::arbitrary<std::uint64_t>(), 1 + *rc::gen::arbitrary<std::uint32_t>(),
      *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::nonEmpty<std::vector<std::uint64_t>>()};
  std::string line;
  append_line(request, line);
  RC_ASSERT(line.back() == '\n');
  line.pop_back();
  const Result<Request> read = parse_request(line);
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == request);
}

}  // namespace
}  // namespace mooncake::workload
