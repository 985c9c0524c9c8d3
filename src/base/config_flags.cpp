#include "base/config_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/text.h"

namespace mooncake::base {

namespace {

// One word of the command line, taken apart.
struct Flag {
  std::string name;  // without dashes in front, '_' for '-'
  std::optional<std::string_view> value;
};

// None when the word isn't a flag.
std::optional<Flag> split_flag(std::string_view word) {
  if (!word.starts_with('-')) return std::nullopt;
  word.remove_prefix(word.starts_with("--") ? 2 : 1);
  if (word.empty()) return std::nullopt;
  Flag flag;
  const auto equals = word.find('=');
  flag.name = word.substr(0, equals);
  std::replace(flag.name.begin(), flag.name.end(), '-', '_');
  if (equals != std::string_view::npos) flag.value = word.substr(equals + 1);
  return flag;
}

std::optional<std::size_t> find_row(std::span<const Setting> table, std::string_view name) {
  for (std::size_t row = 0; row < table.size(); ++row) {
    if (table[row].name == name) return row;
  }
  return std::nullopt;
}

// The boolean that --noNAME switches off.
std::optional<std::size_t> find_negated(std::span<const Setting> table, std::string_view name) {
  if (!name.starts_with("no")) return std::nullopt;
  const auto row = find_row(table, name.substr(2));
  if (!row || table[*row].type != SettingType::kBool) return std::nullopt;
  return row;
}

bool is_known_flag(std::span<const Setting> table, std::string_view word) {
  const auto flag = split_flag(word);
  return flag && (find_row(table, flag->name) || find_negated(table, flag->name));
}

auto unknown_flag(std::span<const Setting> table, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Setting& setting : table)
    names.push_back(setting.name);
  const std::string_view best = nearest(name, names);
  std::string text = fmt::format("unknown flag {}", quote(fmt::format("--{}", name)));
  if (!best.empty()) text += fmt::format("; the nearest known one is '--{}'", best);
  return fail(Code::kInvalidArgument, text);
}

}  // namespace

Result<std::map<std::size_t, std::string>> parse_flags(std::span<const Setting> table,
                                                       std::span<const std::string> arguments) {
  std::map<std::size_t, std::string> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--" && i + 1 == arguments.size()) break;
    const auto flag = split_flag(word);
    if (!flag) {
      return fail(
          Code::kInvalidArgument,
          fmt::format("{} belongs to no flag; flags are written --name=value", quote(word)));
    }
    if (const auto row = find_row(table, flag->name)) {
      const Setting& setting = table[*row];
      if (flag->value) {
        given[*row] = *flag->value;
      } else if (setting.type == SettingType::kBool) {
        given[*row] = "true";
      } else if (i + 1 < arguments.size() && !is_known_flag(table, arguments[i + 1])) {
        given[*row] = arguments[++i];
      } else {
        return fail(Code::kInvalidArgument, fmt::format("{}: the flag needs a value, --{}=...",
                                                        setting.name, setting.name));
      }
      continue;
    }
    const auto negated = find_negated(table, flag->name);
    if (!negated) return unknown_flag(table, flag->name);
    if (flag->value) {
      return fail(Code::kInvalidArgument, fmt::format("{}: '--no{}' takes no value",
                                                      table[*negated].name, table[*negated].name));
    }
    given[*negated] = "false";
  }
  return given;
}

}  // namespace mooncake::base
