#include "store/master/key_pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

namespace mooncake::store::master {

namespace {

constexpr std::int64_t kMaxMemory = 4 << 20;  // bytes; of the program and its states

RE2::Options options() {
  RE2::Options options;
  options.set_encoding(RE2::Options::EncodingLatin1);  // keys are bytes
  options.set_log_errors(false);
  options.set_max_mem(kMaxMemory);
  return options;
}

re2::StringPiece piece(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct KeyPattern::Compiled {
  explicit Compiled(std::string_view pattern) : expression(piece(pattern), options()) {}
  RE2 expression;
};

KeyPattern::KeyPattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
KeyPattern::~KeyPattern() = default;
KeyPattern::KeyPattern(KeyPattern&& other) noexcept = default;

Result<KeyPattern> KeyPattern::compile(std::string_view pattern) {
  auto compiled = std::make_unique<Compiled>(pattern);
  if (!compiled->expression.ok()) {
    return fail(Code::kInvalidArgument,
                fmt::format("pattern '{}': {}", pattern, compiled->expression.error()));
  }
  return KeyPattern(std::move(compiled));
}

bool KeyPattern::matches(std::string_view key) const {
  return RE2::PartialMatch(piece(key), compiled_->expression);
}

}  // namespace mooncake::store::master
