// KeyPattern: which keys a regular expression means.
#pragma once

#include <memory>
#include <string_view>

#include "mooncake/result.h"

namespace mooncake::store::master {

// RE2 syntax, over bytes; it may match anywhere in a key. Time is linear in the key, whatever the
// pattern: no back references and no look-around, which is what a peer may not have anyway. Safe to
// share between threads.
class KeyPattern {
 public:
  // kInvalidArgument says what is wrong with it, or that it is too large.
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
