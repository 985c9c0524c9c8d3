// Settings: one table per module; environment, file, flags, --help and the docs page come from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mooncake/result.h"

namespace mooncake {

enum class SettingType : std::uint8_t {
  kBool,      // true/1/yes/on/enable, false/0/no/off/disable
  kInteger,   // decimal; `minimum` and `maximum` apply
  kReal,      // decimal; `minimum` and `maximum` apply
  kBytes,     // 1024-based: 512mb, "512 MB", 0.5gb, 1048576
  kDuration,  // 10s, 250ms, 5m, 1h; a bare number counts in the table's `unit`
  kText,
  kChoice,    // one of `allowed`, separated by '|'
  kAddress,   // host, host:port, [v6]:port
};

// How far a setting is served. Knobs of the published package that this product does not need are
// accepted and say so once; one that would change what is promised is refused unless left alone.
enum class Support : std::uint8_t { kServed, kAcceptedIgnored, kRefused };

struct Setting {
  std::string_view name;      // flag and file key; words joined by '_'
  SettingType type;
  std::string_view fallback;  // the default, as text
  std::string_view help;
  std::string_view unit = {};      // of a bare number of a kDuration: "ms" or "s"
  std::string_view allowed = {};   // of a kChoice
  double minimum = -9.3e18;        // of numbers, bytes, and durations in `unit`
  double maximum = 9.3e18;
  std::string_view env = {};       // environment variable; none when empty
  std::string_view file_key = {};  // when a file spells it otherwise
  Support support = Support::kServed;
};

enum class SettingSource : std::uint8_t { kDefault, kFile, kEnvironment, kFlag, kArgument };

// What a program or an API call was given, before validation. Flags win over environment, which
// wins over the file, which wins over the default.
struct SettingInputs {
  std::vector<std::string> flags;                  // argv without the program: -port=1, --name value, --noname
  std::map<std::string, std::string> file;         // flat key -> value
  std::map<std::string, std::string> environment;  // usually read by process_environment()
  std::map<std::string, std::string> arguments;    // values set by code; they win over everything
};

// Values of one table, validated as a whole: every error names field, value and allowed set.
// Immutable and safe to share between threads.
class Settings {
 public:
  static Result<Settings> resolve(std::span<const Setting> table, const SettingInputs& inputs);

  bool boolean(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  std::uint64_t bytes(std::string_view name) const;
  std::chrono::milliseconds duration(std::string_view name) const;
  const std::string& text(std::string_view name) const;

  SettingSource source(std::string_view name) const;
  // One line for each knob that was given but is not needed here. Say them once, at start.
  const std::vector<std::string>& notices() const { return notices_; }

  struct Row {
    std::string_view name;
    std::string value;
    SettingSource source;
    std::string_view help;
  };
  // All served settings in table order, for `mooncake doctor`.
  std::vector<Row> rows() const;

 private:
  struct Value {
    std::string text;
    double number = 0;
    std::int64_t whole = 0;
    SettingSource source = SettingSource::kDefault;
  };
  const Value& value(std::string_view name, SettingType type) const;

  std::span<const Setting> table_;
  std::vector<Value> values_;  // one for each row of table_
  std::vector<std::string> notices_;
};

std::string_view to_string(SettingSource source);

// The text of --help and the Markdown table of the docs page.
std::string help_text(std::string_view program, std::span<const Setting> table);
std::string docs_table(std::span<const Setting> table);

// YAML or JSON, flat, by the file's extension (.yaml, .yml, .json). `content` is the file's text.
Result<std::map<std::string, std::string>> parse_config_file(std::string_view path,
                                                             std::string_view content);
// The variables of this process that a table names.
std::map<std::string, std::string> process_environment(std::span<const Setting> table);

// "512mb", "512 MB", "0.5gb", "1048576"; 1024-based. Negative, over 2^63-1 or "50%" is an error.
Result<std::uint64_t> parse_size(std::string_view text);
Result<std::chrono::milliseconds> parse_duration(std::string_view text, std::string_view bare_unit);
// "1.5 GiB"
std::string format_size(std::uint64_t bytes);

}  // namespace mooncake
