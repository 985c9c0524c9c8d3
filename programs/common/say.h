// say: text for stdout or stderr.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace mooncake::program {

// Never throws for a stream that can't be written: a reader that has gone, or a full disk, must not
// end a program in the middle of its work. Who prints results asks std::ferror(stdout) at the end.
template <typename... Args>
void say(std::FILE* to, fmt::format_string<Args...> text, Args&&... args) {
  const std::string line = fmt::format(text, std::forward<Args>(args)...);
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), to));
}

}  // namespace mooncake::program
