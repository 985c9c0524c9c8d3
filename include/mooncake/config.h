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
  kChoice,   // one of `allowed`, separated by '|'
  kAddress,  // host, host:port, [v6]:port
  kHost,     // host name, IPv4 or IPv6 literal without a port; never empty
};

// How far a setting is served. Knobs of the published package that this product does not need are
// accepted and say so once; one that would change what is promised is refused unless left alone.
enum class Support : std::uint8_t { kServed, kAcceptedIgnored, kRefused };

struct Setting {
  std::string_view name;  // flag and file key; words joined by '_'
  SettingType type;
  std::string_view fallback;  // the default, as text
  std::string_view help;
  std::string_view unit = {};     // of a bare number of a kDuration: "ms" or "s"
  std::string_view allowed = {};  // of a kChoice
  double minimum = -9.3e18;       // of numbers, bytes, and durations in `unit`
  double maximum = 9.3e18;
  std::string_view env = {};       // environment variable; none when empty
  std::string_view file_key = {};  // when a file spells it otherwise
  Support support = Support::kServed;
};

enum class SettingSource : std::uint8_t { kDefault, kFile, kEnvironment, kFlag, kArgument };

// What a program or an API call was given, before validation. Arguments win over flags, which win
// over the environment, which wins over the file, which wins over the default; what another source
// has overruled isn't looked at.
struct SettingInputs {
  // argv without the program: -port=1, --port 1, -name, --noname. --help and --version are the
  // caller's business. What isn't a known flag is an error.
  std::vector<std::string> flags;
  // Flat key -> value, as from parse_config_file(). An unknown key is an error.
  std::map<std::string, std::string> file;
  std::string file_name;  // where it was read, for messages
  // Usually from process_environment(); variables that the table doesn't name are passed over, and
  // an empty one counts as not set.
  std::map<std::string, std::string> environment;
  // Values set by code. An unknown name gives a notice.
  std::map<std::string, std::string> arguments;
};

// Values of one table, validated as a whole: every error names field, value and allowed set, as in
// "port: '70000' is not in 1..65535". Immutable and safe to share between threads. The table
// outlives it. Asking for a name that the table lacks, or as another type, is our mistake and ends
// the process.
class Settings {
 public:
  static Result<Settings> resolve(std::span<const Setting> table, const SettingInputs& inputs);

  bool boolean(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  std::uint64_t bytes(std::string_view name) const;
  std::chrono::milliseconds duration(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // kText, kChoice, kAddress, kHost

  SettingSource source(std::string_view name) const;
  // One line for each knob that was given but is not needed here, and one for all unknown names in
  // arguments. Say them once, at start.
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
  std::size_t row_of(std::string_view name) const;
  const Value& value(std::string_view name, SettingType type) const;

  std::span<const Setting> table_;
  std::vector<Value> values_;  // one for each row of table_
  std::vector<std::string> notices_;
};

std::string_view to_string(SettingSource source);

// The text of --help and the Markdown table of the docs page.
std::string help_text(std::string_view program, std::span<const Setting> table);
std::string docs_table(std::span<const Setting> table);

// YAML or JSON, flat, by the file's extension (.yaml, .yml, .json). `content` is the file's text,
// at most 1 MiB. A key without a value (null), a list and a nested table are errors, which name the
// file and the key.
Result<std::map<std::string, std::string>> parse_config_file(std::string_view path,
                                                             std::string_view content);
// The variables of this process that a table names and that aren't empty.
std::map<std::string, std::string> process_environment(std::span<const Setting> table);

// "512mb", "512 MB", "0.5gb", "1 GiB", "1048576"; 1024-based, a fraction of a byte is dropped
// behind a unit and an error without one. Negative, over 2^63-1 or "50%" is an error.
Result<std::uint64_t> parse_size(std::string_view text);
// "250ms", "10s", "1.5m", "1h"; a bare number counts in `bare_unit` and is an error when that is
// empty. Negative, finer than a millisecond or over 100 years is an error.
Result<std::chrono::milliseconds> parse_duration(std::string_view text, std::string_view bare_unit);
// "1.5 GiB"; the largest unit in which the size takes at most three decimals, so that
// parse_size(format_size(n)) == n.
std::string format_size(std::uint64_t bytes);
// "90s", "1500ms"; parse_duration() reads it back.
std::string format_duration(std::chrono::milliseconds duration);

}  // namespace mooncake
