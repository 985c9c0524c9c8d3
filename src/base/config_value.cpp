#include "base/config_value.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace mooncake::base {

namespace {

// Beyond this a bound means "none": it is what 64 bits hold anyway.
constexpr double kUnbounded = 9.2e18;
constexpr std::size_t kMaxHost = 253;  // of DNS

constexpr std::array<std::string_view, 5> kTrueWords = {"true", "1", "yes", "on", "enable"};
constexpr std::array<std::string_view, 5> kFalseWords = {"false", "0", "no", "off", "disable"};

bool is_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [text](std::string_view word) { return equal_ignoring_case(text, word); });
}

auto refuse(const Setting& setting, std::string_view text, std::string_view why) {
  return fail(Code::kInvalidArgument, fmt::format("{}: {} {}", setting.name, quote(text), why));
}

double unit_milliseconds(const Setting& setting) {
  if (setting.unit.empty()) return 1;
  const auto one = parse_duration("1", setting.unit);
  return one ? static_cast<double>(one->count()) : 1;
}

std::string bound_text(const Setting& setting, double bound) {
  const bool integral = std::floor(bound) == bound && std::fabs(bound) < kUnbounded;
  if (setting.type == SettingType::kBytes && integral && bound >= 0) {
    return format_size(static_cast<std::uint64_t>(bound));
  }
  return integral ? fmt::format("{}", static_cast<std::int64_t>(bound)) : fmt::format("{}", bound);
}

std::string range_text(const Setting& setting) {
  const bool low = setting.minimum > -kUnbounded;
  const bool high = setting.maximum < kUnbounded;
  std::string text;
  if (low && high) {
    text = bound_text(setting, setting.minimum) + ".." + bound_text(setting, setting.maximum);
  } else if (low) {
    text = bound_text(setting, setting.minimum) + " or more";
  } else if (high) {
    text = bound_text(setting, setting.maximum) + " or less";
  }
  if (!text.empty() && setting.type == SettingType::kDuration) {
    text += fmt::format(" {}", setting.unit.empty() ? "ms" : setting.unit);
  }
  return text;
}

// "is not an integer in 1..65535"
std::string is_not_a(std::string_view kind, const Setting& setting) {
  const std::string range = range_text(setting);
  return range.empty() ? fmt::format("is not {}", kind)
                       : fmt::format("is not {} in {}", kind, range);
}

Result<void> check_range(const Setting& setting, std::string_view text, double value) {
  if (value >= setting.minimum && value <= setting.maximum) return {};
  return refuse(setting, text, "is not in " + range_text(setting));
}

Result<SettingValue> parse_bool(const Setting& setting, std::string_view text) {
  const std::string_view word = trim(text);
  if (is_one_of(word, kTrueWords)) return SettingValue{"true", 0, 1};
  if (is_one_of(word, kFalseWords)) return SettingValue{"false", 0, 0};
  return refuse(
      setting, text,
      fmt::format("is not one of {}|{}", fmt::join(kTrueWords, "|"), fmt::join(kFalseWords, "|")));
}

Result<SettingValue> parse_integer(const Setting& setting, std::string_view text) {
  const std::string_view number = trim(text);
  SettingValue value{std::string(number), 0, 0};
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, value.whole);
  if (error == std::errc::result_out_of_range && stop == end) {
    const std::string range = range_text(setting);
    return refuse(setting, text, "is not in " + (range.empty() ? "-2^63..2^63-1" : range));
  }
  if (error != std::errc() || stop != end) {
    return refuse(setting, text, is_not_a("an integer", setting));
  }
  MC_CHECK(check_range(setting, text, static_cast<double>(value.whole)));
  return value;
}

Result<SettingValue> parse_real(const Setting& setting, std::string_view text) {
  const std::string_view number = trim(text);
  SettingValue value{std::string(number), 0, 0};
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, value.number);
  if (error != std::errc() || stop != end || !std::isfinite(value.number)) {
    return refuse(setting, text, is_not_a("a number", setting));
  }
  MC_CHECK(check_range(setting, text, value.number));
  return value;
}

Result<SettingValue> parse_bytes(const Setting& setting, std::string_view text) {
  auto size = parse_size(text);
  if (!size) return fail(std::move(size).error().with_context(setting.name));
  MC_CHECK(check_range(setting, text, static_cast<double>(*size)));
  return SettingValue{std::string(trim(text)), 0, static_cast<std::int64_t>(*size)};
}

Result<SettingValue> parse_time(const Setting& setting, std::string_view text) {
  auto duration = parse_duration(text, setting.unit);
  if (!duration) return fail(std::move(duration).error().with_context(setting.name));
  const auto milliseconds = duration->count();
  MC_CHECK(
      check_range(setting, text, static_cast<double>(milliseconds) / unit_milliseconds(setting)));
  return SettingValue{std::string(trim(text)), 0, milliseconds};
}

Result<SettingValue> parse_choice(const Setting& setting, std::string_view text) {
  const std::string_view word = trim(text);
  for (const std::string_view choice : split_choices(setting.allowed)) {
    if (equal_ignoring_case(word, choice)) return SettingValue{std::string(choice), 0, 0};
  }
  return refuse(setting, text, "is not one of " + allowed_text(setting));
}

bool is_ipv6(std::string_view text) {
  const std::string literal(text.substr(0, text.find('%')));
  in6_addr parsed;
  return inet_pton(AF_INET6, literal.c_str(), &parsed) == 1 && !text.ends_with('%');
}

bool is_port(std::string_view text) {
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && stop == end;
}

bool is_host(std::string_view text) {
  constexpr std::string_view kNever = " \t\r\n/\\@[]{}()<>,;|'\"?#=";
  return name_fault(text, kMaxHost).empty() && text.find_first_of(kNever) == std::string_view::npos;
}

// What is wrong with the shape; nothing when it may be an address. Who uses it resolves it.
std::optional<std::string> address_fault(std::string_view text) {
  constexpr std::string_view kShape = "is not host, host:port or [v6]:port";
  constexpr std::string_view kPort = "has a port that is not in 0..65535";
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return "has no ']' after the IPv6 literal";
    if (!is_ipv6(text.substr(1, close - 1))) return "is not an IPv6 literal in brackets";
    const std::string_view rest = text.substr(close + 1);
    if (rest.empty()) return std::nullopt;
    if (!rest.starts_with(':')) return std::string(kShape);
    if (!is_port(rest.substr(1))) return std::string(kPort);
    return std::nullopt;
  }
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons > 1) {
    if (is_ipv6(text)) return std::nullopt;
    return "is not an address; an IPv6 literal with a port is written [v6]:port";
  }
  const auto colon = text.find(':');
  if (!is_host(text.substr(0, colon))) return std::string(kShape);
  if (colon != std::string_view::npos && !is_port(text.substr(colon + 1))) {
    return std::string(kPort);
  }
  return std::nullopt;
}

Result<SettingValue> parse_address_text(const Setting& setting, std::string_view text) {
  const std::string_view address = trim(text);
  const bool left_empty = address.empty() && setting.fallback.empty();
  if (!left_empty) {
    if (const auto fault = address_fault(address)) return refuse(setting, text, *fault);
  }
  return SettingValue{std::string(address), 0, 0};
}

// An IPv6 literal may stand in brackets; they are taken off.
Result<SettingValue> parse_host(const Setting& setting, std::string_view text) {
  std::string_view host = trim(text);
  const bool bracketed = host.size() >= 2 && host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool literal = host.find(':') != std::string_view::npos || bracketed;
  if (literal ? !is_ipv6(host) : !is_host(host)) {
    return refuse(setting, text, "is not a host name or address without a port");
  }
  return SettingValue{std::string(host), 0, 0};
}

}  // namespace

std::vector<std::string_view> split_choices(std::string_view allowed) {
  std::vector<std::string_view> choices;
  for (;;) {
    const auto bar = allowed.find('|');
    choices.push_back(allowed.substr(0, bar));
    if (bar == std::string_view::npos) return choices;
    allowed.remove_prefix(bar + 1);
  }
}

std::string allowed_text(const Setting& setting) {
  switch (setting.type) {
    case SettingType::kBool:
      return "true|false";
    case SettingType::kChoice: {
      std::string text;
      for (const std::string_view choice : split_choices(setting.allowed)) {
        if (!text.empty()) text += '|';
        text += choice.empty() ? "''" : choice;
      }
      return text;
    }
    case SettingType::kInteger:
    case SettingType::kReal:
    case SettingType::kBytes:
    case SettingType::kDuration:
      return range_text(setting);
    case SettingType::kAddress:
      return "host, host:port or [v6]:port";
    case SettingType::kHost:
      return "host";
    case SettingType::kText:
      return {};
  }
  return {};
}

bool means_the_same(const Setting& setting, const SettingValue& a, const SettingValue& b) {
  switch (setting.type) {
    case SettingType::kBool:
    case SettingType::kInteger:
    case SettingType::kBytes:
    case SettingType::kDuration:
      return a.whole == b.whole;
    case SettingType::kReal:
      return a.number == b.number;
    case SettingType::kText:
    case SettingType::kChoice:
    case SettingType::kAddress:
    case SettingType::kHost:
      return a.text == b.text;
  }
  return false;
}

Result<SettingValue> parse_value(const Setting& setting, std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    return refuse(setting, text, "contains a zero byte");
  }
  switch (setting.type) {
    case SettingType::kBool:
      return parse_bool(setting, text);
    case SettingType::kInteger:
      return parse_integer(setting, text);
    case SettingType::kReal:
      return parse_real(setting, text);
    case SettingType::kBytes:
      return parse_bytes(setting, text);
    case SettingType::kDuration:
      return parse_time(setting, text);
    case SettingType::kChoice:
      return parse_choice(setting, text);
    case SettingType::kAddress:
      return parse_address_text(setting, text);
    case SettingType::kHost:
      return parse_host(setting, text);
    case SettingType::kText:
      return SettingValue{std::string(text), 0, 0};
  }
  return refuse(setting, text, "has a type that nobody can read");
}

}  // namespace mooncake::base
