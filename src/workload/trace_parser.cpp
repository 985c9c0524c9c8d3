// One line of a trace. Written by hand: several times as fast as a general JSON library, and an
// error can name the field and the value.
#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "workload/trace.h"

namespace mooncake::workload {
namespace {

constexpr int kMaxDepth = 32;  // of values that are skipped

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class LineParser {
 public:
  LineParser(std::string_view text, const TraceLimits& limits) : text_(text), limits_(limits) {}

  Result<Request> parse() {
    if (!parse_object() || !check_complete()) {
      return fail(Code::kInvalidArgument, error_);
    }
    return std::move(request_);
  }

 private:
  static constexpr std::array<std::string_view, 4> kFields{"timestamp", "input_length",
                                                           "output_length", "hash_ids"};

  bool parse_object() {
    skip_space();
    if (!take('{')) {
      return wrong("expected '{'");
    }
    skip_space();
    if (!take('}')) {
      do {
        if (!parse_member()) {
          return false;
        }
      } while (take(','));
      if (!take('}')) {
        return wrong("expected ',' or '}'");
      }
    }
    skip_space();
    return at_ == text_.size() || wrong("expected the end of the line");
  }

  bool parse_member() {
    skip_space();
    std::string_view key;
    if (!parse_string(key)) {
      return false;
    }
    skip_space();
    if (!take(':')) {
      return wrong("expected ':'");
    }
    skip_space();
    const bool good = parse_field(key);
    skip_space();
    return good;
  }

  bool parse_field(std::string_view key) {
    std::size_t field = 0;
    while (field < kFields.size() && kFields[field] != key) {
      ++field;
    }
    if (field == kFields.size()) {
      return skip_value(0);
    }
    if (seen_[field]) {
      return wrong_field(key, "comes twice, the second time as");
    }
    seen_[field] = true;
    switch (field) {
      case 0:
        return parse_number(key, request_.timestamp_ms);
      case 1:
        return parse_number(key, request_.input_length);
      case 2:
        return parse_number(key, request_.output_length);
      default:
        return parse_ids();
    }
  }

  bool parse_ids() {
    if (!take('[')) {
      return wrong_field("hash_ids", "must be a list, is");
    }
    skip_space();
    if (take(']')) {
      return true;
    }
    std::vector<std::uint64_t>& ids = request_.hash_ids;
    do {
      skip_space();
      ids.emplace_back();
      if (ids.size() > limits_.ids_per_request) {
        return wrong_field("hash_ids", "is one more than the limit of " +
                                           std::to_string(limits_.ids_per_request) + ", with");
      }
      if (!parse_number("hash_ids", ids.back())) {
        return false;
      }
      skip_space();
    } while (take(','));
    return take(']') || wrong_field("hash_ids", "expected ',' or ']' at");
  }

  bool parse_number(std::string_view field, std::uint64_t& out) {
    constexpr std::uint64_t kMax = UINT64_MAX;
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    bool good = at_ < text_.size() && is_digit(text_[at_]);
    while (good && at_ < text_.size() && is_digit(text_[at_])) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      good = value <= (kMax - digit) / 10 && (value != 0 || at_ == begin);  // no leading zero
      value = value * 10 + digit;
      ++at_;
    }
    if (!good || (at_ < text_.size() && !ends_number(text_[at_]))) {
      at_ = begin;
      return wrong_field(field, "must be a whole number from 0 to 18446744073709551615, is");
    }
    out = value;
    return true;
  }
  static bool ends_number(char c) { return c == ',' || c == ']' || c == '}' || is_space(c); }

  bool check_complete() {
    for (std::size_t field = 0; field < kFields.size(); ++field) {
      if (!seen_[field]) {
        error_ = "field " + std::string(kFields[field]) + ": is missing";
        return false;
      }
    }
    if (request_.input_length == 0) {
      error_ = "field input_length: must be at least 1, is '0'";
      return false;
    }
    if (request_.hash_ids.empty()) {
      error_ = "field hash_ids: must have at least one id, is '[]'";
      return false;
    }
    return true;
  }

  // `out` is the string as written, without the quotes.
  bool parse_string(std::string_view& out) {
    if (!take('"')) {
      return wrong("expected '\"'");
    }
    const std::size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        out = text_.substr(begin, at_ - begin);
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) {
        return wrong("control character in a string");
      }
      if (c == '\\' && !skip_escape()) {
        return wrong("wrong escape in a string");
      }
    }
    return wrong("string without end");
  }

  // Stands on the backslash; leaves the last character of the escape to the caller.
  bool skip_escape() {
    ++at_;
    if (at_ >= text_.size()) {
      return false;
    }
    if (text_[at_] != 'u') {
      return std::string_view("\"\\/bfnrt").find(text_[at_]) != std::string_view::npos;
    }
    for (int i = 0; i < 4; ++i) {
      ++at_;
      if (at_ >= text_.size() || std::isxdigit(static_cast<unsigned char>(text_[at_])) == 0) {
        return false;
      }
    }
    return true;
  }

  // Any JSON value under a key that is not ours.
  bool skip_value(int depth) {
    if (depth == kMaxDepth) {
      return wrong("values nested deeper than " + std::to_string(kMaxDepth));
    }
    std::string_view ignored;
    switch (peek()) {
      case '"':
        return parse_string(ignored);
      case '[':
        return skip_items(']', depth);
      case '{':
        return skip_items('}', depth);
      default:
        return skip_scalar();
    }
  }

  bool skip_items(char close, int depth) {
    ++at_;
    skip_space();
    if (take(close)) {
      return true;
    }
    do {
      skip_space();
      if (close == '}') {
        std::string_view ignored;
        if (!parse_string(ignored)) {
          return false;
        }
        skip_space();
        if (!take(':')) {
          return wrong("expected ':'");
        }
        skip_space();
      }
      if (!skip_value(depth + 1)) {
        return false;
      }
      skip_space();
    } while (take(','));
    return take(close) || wrong("expected ',' or the end of a list or object");
  }

  bool skip_scalar() {
    for (const std::string_view word : {"null", "true", "false"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return true;
      }
    }
    const std::size_t begin = at_;
    take('-');
    bool good = take('0') || skip_digits();
    if (good && take('.')) {
      good = skip_digits();
    }
    if (good && (take('e') || take('E'))) {
      if (!take('+')) {
        take('-');
      }
      good = skip_digits();
    }
    if (!good) {
      at_ = begin;
      return wrong("expected a value");
    }
    return true;
  }

  bool skip_digits() {
    const std::size_t begin = at_;
    while (is_digit(peek())) {
      ++at_;
    }
    return at_ != begin;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) {
      return false;
    }
    ++at_;
    return true;
  }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) {
      ++at_;
    }
  }

  // The value at the current place, up to where a number would end.
  std::string shown() const {
    std::size_t end = at_ + 1;
    while (end < text_.size() && !ends_number(text_[end])) {
      ++end;
    }
    return base::quote(text_.substr(std::min(at_, text_.size()), end - at_));
  }
  bool wrong(std::string_view what) {
    error_ = "column " + std::to_string(at_ + 1) + ": " + std::string(what);
    error_ += at_ < text_.size() ? ", found " + shown() : ", found the end of the line";
    return false;
  }
  bool wrong_field(std::string_view field, std::string_view what) {
    error_ = "field " + std::string(field);
    if (field == "hash_ids" && !request_.hash_ids.empty()) {
      error_ += "[" + std::to_string(request_.hash_ids.size() - 1) + "]";
    }
    error_ += ": " + std::string(what) + " " + shown();
    return false;
  }

  std::string_view text_;
  const TraceLimits& limits_;
  std::size_t at_ = 0;
  std::array<bool, 4> seen_{};
  Request request_;
  std::string error_;
};

}  // namespace

Result<Request> parse_request(std::string_view line, const TraceLimits& limits) {
  if (line.size() > limits.line_bytes) {
    return fail(Code::kInvalidArgument,
                "line is longer than the limit of " + std::to_string(limits.line_bytes) + " bytes");
  }
  return LineParser(line, limits).parse();
}

}  // namespace mooncake::workload
