// KeyPattern: which keys a regular expression means.
#pragma once

#include <memory>
#include <string_view>

#include "mooncake/result.h"

namespace mooncake::store::master {

// RE2 syntax, over bytes; it may match anywhere in a key. No back references and no look-around, so
// that time is linear in the key; and in the pattern's steps (about one for each character, and as
// often as it is repeated) where it has too many states to be kept, some 20 to 50 ns for each of
// both. So many steps are few enough that the longest key takes some 50 ms at worst. Safe to share
// between threads.
class KeyPattern {
 public:
  static constexpr int kMaxSteps = 256;

  // kInvalidArgument says what is wrong with it, or that it has more than kMaxSteps.
  static Result<KeyPattern> compile(std::string_view pattern);
  ~KeyPattern();
  KeyPattern(KeyPattern&& other) noexcept;

  bool matches(std::string_view key) const;

 private:
  struct Compiled;
  explicit KeyPattern(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace mooncake::store::master
