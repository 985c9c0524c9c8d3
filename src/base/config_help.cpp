// What the tables say about themselves: --help and the docs page.
#include <fmt/format.h>

#include "base/config_value.h"
#include "mooncake/config.h"

namespace mooncake {

namespace {

std::string_view type_word(SettingType type) {
  switch (type) {
    case SettingType::kBool:
      return "boolean";
    case SettingType::kInteger:
      return "integer";
    case SettingType::kReal:
      return "number";
    case SettingType::kBytes:
      return "size";
    case SettingType::kDuration:
      return "duration";
    case SettingType::kText:
      return "text";
    case SettingType::kChoice:
      return "choice";
    case SettingType::kAddress:
      return "address";
    case SettingType::kHost:
      return "host";
  }
  return "text";
}

// "integer, 1..65535"; "duration in ms, 0 or more"
std::string kind_text(const Setting& setting) {
  std::string text(type_word(setting.type));
  if (setting.type == SettingType::kDuration && !setting.unit.empty()) {
    text += fmt::format(" in {}", setting.unit);
  }
  const std::string allowed = base::allowed_text(setting);
  const bool said = setting.type == SettingType::kBool || setting.type == SettingType::kAddress ||
                    setting.type == SettingType::kHost;
  if (!allowed.empty() && !said) text += ", " + allowed;
  return text;
}

void add_help(std::string& text, const Setting& setting) {
  text += fmt::format("  --{}  {}, default {}\n      {}\n", setting.name, kind_text(setting),
                      setting.fallback.empty() ? "''" : setting.fallback, setting.help);
  if (!setting.env.empty()) text += fmt::format("      environment: {}\n", setting.env);
}

// The names of one kind of support, folded into lines.
std::string names_text(std::span<const Setting> table, Support support) {
  constexpr std::size_t kWidth = 96;
  std::string text;
  std::size_t column = 0;
  for (const Setting& setting : table) {
    if (setting.support != support) continue;
    if (column == 0 || column + setting.name.size() + 1 > kWidth) {
      if (column != 0) text += '\n';
      text += "  ";
      column = 2;
    } else {
      text += ' ';
      ++column;
    }
    text += setting.name;
    column += setting.name.size();
  }
  if (!text.empty()) text += '\n';
  return text;
}

// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

std::string code_cell(std::string_view text) {
  return text.empty() ? std::string() : "`" + cell(text) + "`";
}

std::string_view support_word(Support support) {
  switch (support) {
    case Support::kServed:
      return "yes";
    case Support::kAcceptedIgnored:
      return "accepted, ignored";
    case Support::kRefused:
      return "only the default";
  }
  return "no";
}

}  // namespace

std::string help_text(std::string_view program, std::span<const Setting> table) {
  std::string text = fmt::format("usage: {} [--name=value ...]\n\n", program);
  for (const Setting& setting : table) {
    if (setting.support == Support::kServed) add_help(text, setting);
  }
  const std::string ignored = names_text(table, Support::kAcceptedIgnored);
  if (!ignored.empty()) text += "\nAccepted and ignored:\n" + ignored;
  const std::string refused = names_text(table, Support::kRefused);
  if (!refused.empty()) text += "\nNot served; only the default is accepted:\n" + refused;
  return text;
}

std::string docs_table(std::span<const Setting> table) {
  std::string text =
      "| setting | kind | default | environment | served | meaning |\n|---|---|---|---|---|---|\n";
  for (const Setting& setting : table) {
    std::string name = code_cell(setting.name);
    if (!setting.file_key.empty() && setting.file_key != setting.name) {
      name += fmt::format(" (in files {})", code_cell(setting.file_key));
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", name, cell(kind_text(setting)),
                        code_cell(setting.fallback), code_cell(setting.env),
                        support_word(setting.support), cell(setting.help));
  }
  return text;
}

}  // namespace mooncake
