#include "store/master/key_pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>

namespace mooncake::store::master {

namespace {

constexpr std::int64_t kMaxMemory = 4 << 20;  // bytes; of the program and its states
// In which any program of kMaxSteps fits; compiling what is far larger ends there.
constexpr std::int64_t kMemoryToTry = 128 << 10;

RE2::Options options(std::int64_t memory) {
  RE2::Options options;
  options.set_encoding(RE2::Options::EncodingLatin1);  // keys are bytes
  options.set_log_errors(false);
  options.set_max_mem(memory);
  return options;
}

// The larger number of a repetition, "{3}", "{2,}", "{2,7}", at the begin of `text`.
int times(std::string_view text) {
  int most = 0, number = 0;
  for (const char c : text.substr(1)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && c != ',') break;
    number = digit ? std::min(number * 10 + (c - '0'), KeyPattern::kMaxSteps + 1) : 0;
    most = std::max(most, number);
  }
  return most;
}

// As many steps as the pattern needs at least, by what RE2 takes long to read: repetitions, which
// it writes out before it asks how large they are (seconds, for 4 KiB of them), and Unicode
// classes.
int least_steps(std::string_view pattern) {
  constexpr int kOfUnicodeClass = 4;
  int steps = 0;
  for (std::size_t at = 0; at < pattern.size() && steps <= KeyPattern::kMaxSteps; ++at) {
    if (pattern[at] == '{') steps += times(pattern.substr(at));
    if (pattern[at] != '\\' || ++at == pattern.size()) continue;
    if (pattern[at] == 'p' || pattern[at] == 'P') steps += kOfUnicodeClass;
  }
  return steps;
}

re2::StringPiece piece(std::string_view text) { return {text.data(), text.size()}; }

Error too_large(std::string_view pattern) {
  return Error(Code::kInvalidArgument,
               fmt::format("pattern '{}': it needs more than {} steps for a byte of a key (about "
                           "one for each character, as often as that is repeated); use several "
                           "shorter ones",
                           pattern, KeyPattern::kMaxSteps));
}

}  // namespace

struct KeyPattern::Compiled {
  Compiled(std::string_view pattern, std::int64_t memory)
      : expression(piece(pattern), options(memory)) {}
  RE2 expression;
};

KeyPattern::KeyPattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
KeyPattern::~KeyPattern() = default;
KeyPattern::KeyPattern(KeyPattern&& other) noexcept = default;

Result<KeyPattern> KeyPattern::compile(std::string_view pattern) {
  if (least_steps(pattern) > kMaxSteps) return fail(too_large(pattern));
  const Compiled trial(pattern, kMemoryToTry);
  if (trial.expression.error_code() == RE2::ErrorPatternTooLarge) return fail(too_large(pattern));
  if (!trial.expression.ok()) {
    return fail(Code::kInvalidArgument,
                fmt::format("pattern '{}': {}", pattern, trial.expression.error()));
  }
  if (trial.expression.ProgramSize() > kMaxSteps) return fail(too_large(pattern));
  return KeyPattern(std::make_unique<Compiled>(pattern, kMaxMemory));
}

bool KeyPattern::matches(std::string_view key) const {
  return RE2::PartialMatch(piece(key), compiled_->expression);
}

}  // namespace mooncake::store::master
