// Log lines for people: what happened, to which key or peer, and what follows. Hot paths count
// instead.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace mooncake::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Lines go to stderr, one write each, always UTF-8: control characters and other bytes are escaped.
// They are cut after 4000 bytes. Default level: kWarning for the library, programs choose. Any
// thread.
void set_log_level(LogLevel level);
LogLevel log_level();
void write_log(LogLevel level, std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= log_level()) write_log(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace mooncake::base
