#include "mooncake/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/config_flags.h"
#include "base/config_value.h"
#include "base/text.h"

namespace mooncake {

namespace {

using base::parse_value;
using base::quote;

// The text of one setting that counts, and who gave it.
struct Given {
  std::string_view text;
  SettingSource source = SettingSource::kDefault;
  std::string_view key;  // as the source spells the name
};

[[noreturn]] void our_mistake(std::string_view name, const char* what) {
  std::fprintf(stderr, "setting '%.*s': %s\n", static_cast<int>(name.size()), name.data(), what);
  std::abort();
}

const std::string* find(const std::map<std::string, std::string>& values, std::string_view key) {
  if (key.empty()) return nullptr;
  const auto found = values.find(std::string(key));
  return found == values.end() ? nullptr : &found->second;
}

// A file may use the flag's name or the file's own spelling, but not both.
Result<std::optional<Given>> find_in_file(const Setting& setting, const SettingInputs& inputs) {
  const std::string* const by_key = find(inputs.file, setting.file_key);
  const std::string* const by_name = find(inputs.file, setting.name);
  if (by_key && by_name && setting.file_key != setting.name) {
    return fail(Code::kInvalidArgument,
                fmt::format("{}: the config file sets both '{}' and '{}'; keep one", setting.name,
                            setting.name, setting.file_key));
  }
  if (by_key) return Given{*by_key, SettingSource::kFile, setting.file_key};
  if (by_name) return Given{*by_name, SettingSource::kFile, setting.name};
  return std::nullopt;
}

Result<Given> choose(const Setting& setting, const std::string* flag, const SettingInputs& inputs) {
  if (const auto* text = find(inputs.arguments, setting.name)) {
    return Given{*text, SettingSource::kArgument, setting.name};
  }
  if (flag) return Given{*flag, SettingSource::kFlag, setting.name};
  const auto* variable = find(inputs.environment, setting.env);
  if (variable && !variable->empty()) {
    return Given{*variable, SettingSource::kEnvironment, setting.env};
  }
  MC_TRY(const auto in_file, find_in_file(setting, inputs));
  if (in_file) return *in_file;
  return Given{setting.fallback, SettingSource::kDefault, setting.name};
}

// "the config file 'm.yaml'"
std::string file_text(const SettingInputs& inputs) {
  return inputs.file_name.empty() ? "the config file"
                                  : "the config file " + quote(inputs.file_name);
}

// Where to look for the value at fault, when that isn't the command line.
std::string origin_text(const Given& given, const SettingInputs& inputs) {
  if (given.source == SettingSource::kEnvironment) {
    return fmt::format(" (environment variable {})", given.key);
  }
  if (given.source == SettingSource::kFile)
    return fmt::format(" (key '{}' of {})", given.key, file_text(inputs));
  return {};
}

// Parses a value and holds it against what is served. `standard` is the parsed default, `origin`
// says who gave the value.
Result<base::SettingValue> accept(const Setting& setting, std::string_view text,
                                  const base::SettingValue& standard, std::string_view origin) {
  auto value = parse_value(setting, text);
  if (!value) {
    const Error& error = value.error();
    return fail(error.code(), fmt::format("{}{}", error.detail(), origin));
  }
  if (setting.support == Support::kRefused && !base::means_the_same(setting, *value, standard)) {
    return fail(
        Code::kNotSupported,
        fmt::format("{}: {} is not served{}; it would change: {}. Leave it at {}", setting.name,
                    quote(text), origin, setting.help, quote(setting.fallback)));
  }
  return value;
}

// The names of `given` that the table lacks, each with one that is near; empty when there is none.
std::string unknown_names(std::span<const Setting> table,
                          const std::map<std::string, std::string>& given, bool file) {
  std::vector<std::string_view> known;
  for (const Setting& setting : table) {
    known.push_back(setting.name);
    if (file && !setting.file_key.empty()) known.push_back(setting.file_key);
  }
  constexpr std::size_t kMaxNamed = 20;
  std::size_t count = 0;
  std::string text;
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (++count > kMaxNamed) continue;
    if (!text.empty()) text += ", ";
    text += quote(name);
    const std::string_view nearest = base::nearest(name, known);
    if (!nearest.empty()) text += fmt::format(" (nearest: {})", nearest);
  }
  if (count > kMaxNamed) text += fmt::format(" and {} more", count - kMaxNamed);
  return text;
}

bool same_kind(SettingType asked, SettingType is) {
  if (asked != SettingType::kText) return asked == is;
  return is == SettingType::kText || is == SettingType::kChoice || is == SettingType::kAddress ||
         is == SettingType::kHost;
}

}  // namespace

Result<Settings> Settings::resolve(std::span<const Setting> table, const SettingInputs& inputs) {
  Settings settings;
  settings.table_ = table;
  MC_TRY(const auto flags, base::parse_flags(table, inputs.flags));
  if (const std::string unknown = unknown_names(table, inputs.file, true); !unknown.empty()) {
    return fail(Code::kInvalidArgument,
                fmt::format("unknown keys in {}: {}", file_text(inputs), unknown));
  }
  for (std::size_t row = 0; row < table.size(); ++row) {
    const Setting& setting = table[row];
    auto standard = parse_value(setting, setting.fallback);
    if (!standard)
      return fail(Code::kInternal, "default of " + std::string(standard.error().detail()));
    const auto flag = flags.find(row);
    MC_TRY(const auto given,
           choose(setting, flag == flags.end() ? nullptr : &flag->second, inputs));
    const std::string origin = origin_text(given, inputs);
    MC_TRY(auto value, accept(setting, given.text, *standard, origin));
    if (setting.support == Support::kAcceptedIgnored && given.source != SettingSource::kDefault) {
      settings.notices_.push_back(
          fmt::format("{}: accepted and ignored, it has no effect here{}", setting.name, origin));
    }
    settings.values_.push_back(
        Value{std::move(value.text), value.number, value.whole, given.source});
  }
  if (const std::string unknown = unknown_names(table, inputs.arguments, false); !unknown.empty()) {
    settings.notices_.push_back("ignored unknown settings: " + unknown);
  }
  return settings;
}

std::size_t Settings::row_of(std::string_view name) const {
  for (std::size_t row = 0; row < table_.size(); ++row) {
    if (table_[row].name == name) return row;
  }
  our_mistake(name, "no such row in the table");
}

const Settings::Value& Settings::value(std::string_view name, SettingType type) const {
  const std::size_t row = row_of(name);
  if (!same_kind(type, table_[row].type)) our_mistake(name, "asked for as another type");
  return values_[row];
}

bool Settings::boolean(std::string_view name) const {
  return value(name, SettingType::kBool).whole != 0;
}
std::int64_t Settings::integer(std::string_view name) const {
  return value(name, SettingType::kInteger).whole;
}
double Settings::real(std::string_view name) const {
  return value(name, SettingType::kReal).number;
}
std::uint64_t Settings::bytes(std::string_view name) const {
  return static_cast<std::uint64_t>(value(name, SettingType::kBytes).whole);
}
std::chrono::milliseconds Settings::duration(std::string_view name) const {
  return std::chrono::milliseconds(value(name, SettingType::kDuration).whole);
}
const std::string& Settings::text(std::string_view name) const {
  return value(name, SettingType::kText).text;
}
SettingSource Settings::source(std::string_view name) const { return values_[row_of(name)].source; }

std::vector<Settings::Row> Settings::rows() const {
  std::vector<Row> rows;
  for (std::size_t row = 0; row < table_.size(); ++row) {
    const Setting& setting = table_[row];
    if (setting.support != Support::kServed) continue;
    rows.push_back({setting.name, values_[row].text, values_[row].source, setting.help});
  }
  return rows;
}

std::string_view to_string(SettingSource source) {
  switch (source) {
    case SettingSource::kDefault:
      return "default";
    case SettingSource::kFile:
      return "file";
    case SettingSource::kEnvironment:
      return "environment";
    case SettingSource::kFlag:
      return "flag";
    case SettingSource::kArgument:
      return "argument";
  }
  return "unknown";
}

std::map<std::string, std::string> process_environment(std::span<const Setting> table) {
  std::map<std::string, std::string> found;
  for (const Setting& setting : table) {
    if (setting.env.empty()) continue;
    std::string name(setting.env);
    const char* const value = std::getenv(name.c_str());
    if (value && *value) found.emplace(std::move(name), value);
  }
  return found;
}

}  // namespace mooncake
