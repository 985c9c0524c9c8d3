#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <memory>

#include "base/text.h"

namespace mooncake::base {

namespace {

// What a pipe takes in one piece, less the head of the line.
constexpr std::size_t kMaxText = 4000;

std::atomic<LogLevel> current_level{LogLevel::kWarning};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

// Never destroyed, so that threads which outlive main() can still write. stderr has no buffer of
// its own: the sink's one fwrite() of a line is one write().
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("mooncake", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::trace);
    made->set_pattern("%Y-%m-%d %H:%M:%S.%f %L %P.%t %v");
    made->set_error_handler([](const std::string&) {});  // nobody is left to be told
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { current_level.store(level, std::memory_order_relaxed); }

LogLevel log_level() { return current_level.load(std::memory_order_relaxed); }

void write_log(LogLevel level, std::string_view text) {
  if (level == LogLevel::kOff) return;
  std::string line = escape(utf8_prefix(text, kMaxText));
  if (text.size() > kMaxText || line.size() > kMaxText) {
    line.resize(utf8_prefix(line, kMaxText).size());
    line += "...";
  }
  logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace mooncake::base
