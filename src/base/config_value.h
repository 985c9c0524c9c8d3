// One setting, one value: from text to what Settings hands out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mooncake/config.h"

namespace mooncake::base {

struct SettingValue {
  std::string text;        // as given; a choice in the table's spelling, a boolean as true or false
  double number = 0;       // kReal
  std::int64_t whole = 0;  // kBool 0/1, kInteger, kBytes in bytes, kDuration in milliseconds

  bool operator==(const SettingValue&) const = default;
};

// The error says "name: 'value' is not ..." and what is allowed.
Result<SettingValue> parse_value(const Setting& setting, std::string_view text);

// Equal for the program, however it was spelled: 1s and 1000ms, no and false.
bool means_the_same(const Setting& setting, const SettingValue& a, const SettingValue& b);

// "1..65535", "0 or more", "random|cxl", "true|false"; empty when anything goes.
std::string allowed_text(const Setting& setting);

std::vector<std::string_view> split_choices(std::string_view allowed);

}  // namespace mooncake::base
