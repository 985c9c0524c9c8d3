// Any command line (words split at line ends) is refused with words, or gives settings that keep
// their ranges and that, written as flags again, give the same settings.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "mooncake/config.h"

namespace {

using mooncake::Setting;
using mooncake::Settings;
using mooncake::SettingType;

constexpr Setting kTable[] = {
    {.name = "port",
     .type = SettingType::kInteger,
     .fallback = "1",
     .help = "",
     .minimum = 1,
     .maximum = 65535},
    {.name = "ratio",
     .type = SettingType::kReal,
     .fallback = "0.5",
     .help = "",
     .minimum = 0,
     .maximum = 1},
    {.name = "size", .type = SettingType::kBytes, .fallback = "4 GB", .help = ""},
    {.name = "ttl", .type = SettingType::kDuration, .fallback = "10", .help = "", .unit = "s"},
    {.name = "on", .type = SettingType::kBool, .fallback = "true", .help = ""},
    {.name = "mode", .type = SettingType::kChoice, .fallback = "a", .help = "", .allowed = "a|b|"},
    {.name = "text", .type = SettingType::kText, .fallback = "", .help = ""},
    {.name = "address", .type = SettingType::kAddress, .fallback = "", .help = ""},
    {.name = "host", .type = SettingType::kHost, .fallback = "::", .help = ""},
    {.name = "old",
     .type = SettingType::kText,
     .fallback = "",
     .help = "",
     .support = mooncake::Support::kAcceptedIgnored},
    {.name = "ha",
     .type = SettingType::kBool,
     .fallback = "0",
     .help = "",
     .support = mooncake::Support::kRefused},
};

void check_ranges(const Settings& settings) {
  const auto port = settings.integer("port");
  if (port < 1 || port > 65535) std::abort();
  if (!(settings.real("ratio") >= 0 && settings.real("ratio") <= 1)) std::abort();
  if (settings.duration("ttl").count() < 0) std::abort();
  if (settings.boolean("ha")) std::abort();
  if (settings.text("host").empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  mooncake::SettingInputs inputs;
  while (!text.empty()) {
    const auto end = text.find('\n');
    inputs.flags.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  const auto settings = Settings::resolve(kTable, inputs);
  if (!settings) {
    if (settings.error().detail().empty()) std::abort();
    return 0;
  }
  check_ranges(*settings);
  mooncake::SettingInputs written;
  for (const auto& row : settings->rows()) {
    written.flags.push_back("--" + std::string(row.name) + "=" + row.value);
  }
  const auto again = Settings::resolve(kTable, written);
  if (!again) std::abort();
  for (const auto& row : again->rows()) {
    if (row.source != mooncake::SettingSource::kFlag) std::abort();
  }
  if (again->integer("port") != settings->integer("port") ||
      again->real("ratio") != settings->real("ratio") ||
      again->bytes("size") != settings->bytes("size") ||
      again->duration("ttl") != settings->duration("ttl") ||
      again->boolean("on") != settings->boolean("on") ||
      again->text("mode") != settings->text("mode") ||
      again->text("text") != settings->text("text") ||
      again->text("address") != settings->text("address") ||
      again->text("host") != settings->text("host")) {
    std::abort();
  }
  return 0;
}
