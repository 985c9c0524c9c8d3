// The one parser of sizes and of durations, and what writes them.
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "base/text.h"
#include "mooncake/config.h"

namespace mooncake {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();
// A century: added to any time point of ours it stays far from the end of 64-bit nanoseconds.
constexpr std::uint64_t kMaxMilliseconds = 36'525ull * 86'400 * 1000;
constexpr std::string_view kSizeShape =
    "is not a size: a decimal number, then b, kb, mb, gb or tb (1024-based), such as 512mb";

// A decimal as it was written: whole + fraction / scale.
struct Decimal {
  Wide whole = 0;  // saturated at kBeyond, which is more than any limit here
  Wide fraction = 0;
  Wide scale = 1;
  bool finer = false;  // non-zero decimals follow those in `fraction`
};
constexpr Wide kBeyond = Wide{1} << 64;

// `decimal` in steps of 1/multiplier, rounded down. 2^64 * 2^40 and 10^18 * 2^40 fit 128 bits.
Wide scaled(const Decimal& decimal, std::uint64_t multiplier) {
  return decimal.whole * multiplier + decimal.fraction * multiplier / decimal.scale;
}
bool is_exact(const Decimal& decimal, std::uint64_t multiplier) {
  return !decimal.finer && decimal.fraction * multiplier % decimal.scale == 0;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes "12" or "12.5" off the front of `text`; none when there is no number.
std::optional<Decimal> take_decimal(std::string_view& text) {
  constexpr Wide kMaxScale = 1'000'000'000'000'000'000;
  Decimal result;
  std::size_t i = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    result.whole = result.whole * 10 + static_cast<Wide>(text[i] - '0');
    if (result.whole > kBeyond) result.whole = kBeyond;
  }
  if (i == 0) return std::nullopt;
  if (i < text.size() && text[i] == '.') {
    const std::size_t first = ++i;
    for (; i < text.size() && is_digit(text[i]); ++i) {
      if (result.scale == kMaxScale) {
        result.finer = result.finer || text[i] != '0';
        continue;
      }
      result.fraction = result.fraction * 10 + static_cast<Wide>(text[i] - '0');
      result.scale *= 10;
    }
    if (i == first) return std::nullopt;
  }
  text.remove_prefix(i);
  return result;
}

std::optional<std::uint64_t> size_multiplier(std::string_view suffix) {
  if (suffix.empty() || base::equal_ignoring_case(suffix, "b")) return 1;
  const std::string word = base::to_lower(suffix);
  const std::size_t power = std::string_view("kmgt").find(word[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = std::string_view(word).substr(1);
  if (!rest.empty() && rest != "b" && rest != "ib") return std::nullopt;
  return std::uint64_t{1} << (10 * (power + 1));
}

std::optional<std::uint64_t> milliseconds_in(std::string_view unit) {
  if (base::equal_ignoring_case(unit, "ms")) return 1;
  if (base::equal_ignoring_case(unit, "s")) return 1000;
  if (base::equal_ignoring_case(unit, "m")) return 60'000;
  if (base::equal_ignoring_case(unit, "h")) return 3'600'000;
  return std::nullopt;
}

auto refuse(std::string_view text, std::string_view why) {
  return fail(Code::kInvalidArgument, base::quote(text) + " " + std::string(why));
}

// "1.5" for 1536 of 1024; none when that takes more than three decimals.
std::optional<std::string> exact_quotient(std::uint64_t value, std::uint64_t unit) {
  std::string text = std::to_string(value / unit);
  std::uint64_t rest = value % unit;
  if (rest == 0) return text;
  text += '.';
  for (int decimals = 0; decimals < 3 && rest != 0; ++decimals) {
    // rest < unit <= 2^40, so that ten times it fits.
    rest *= 10;
    text += static_cast<char>('0' + rest / unit);
    rest %= unit;
  }
  if (rest != 0) return std::nullopt;
  return text;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  std::string_view rest = base::trim(text);
  if (rest.starts_with('-')) return refuse(text, "is negative; a size is 0 or more");
  const auto number = take_decimal(rest);
  if (!number) return refuse(text, kSizeShape);
  const auto multiplier = size_multiplier(base::trim(rest));
  if (!multiplier) return refuse(text, kSizeShape);

  if (*multiplier == 1 && !is_exact(*number, 1)) {
    return refuse(text, "is not a whole number of bytes");
  }
  const Wide bytes = scaled(*number, *multiplier);
  if (bytes > kMaxBytes) return refuse(text, "is more than 2^63-1 bytes");
  return static_cast<std::uint64_t>(bytes);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text,
                                                 std::string_view bare_unit) {
  constexpr std::string_view kShape =
      "is not a duration: a decimal number, then ms, s, m or h, such as 250ms";
  std::string_view rest = base::trim(text);
  if (rest.starts_with('-')) return refuse(text, "is negative; a duration is 0 or more");
  const auto number = take_decimal(rest);
  if (!number) return refuse(text, kShape);
  std::string_view unit = base::trim(rest);
  if (unit.empty()) unit = bare_unit;
  if (unit.empty()) return refuse(text, "has no unit: add ms, s, m or h");
  const auto multiplier = milliseconds_in(unit);
  if (!multiplier) return refuse(text, kShape);

  if (!is_exact(*number, *multiplier)) return refuse(text, "is finer than a millisecond");
  const Wide milliseconds = scaled(*number, *multiplier);
  if (milliseconds > kMaxMilliseconds) return refuse(text, "is more than 100 years");
  return std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits = {" KiB", " MiB", " GiB", " TiB"};
  for (std::size_t power = kUnits.size(); power > 0; --power) {
    const std::uint64_t unit = std::uint64_t{1} << (10 * power);
    if (bytes < unit) continue;
    if (auto text = exact_quotient(bytes, unit)) return *text + std::string(kUnits[power - 1]);
  }
  return std::to_string(bytes) + " B";
}

std::string format_duration(std::chrono::milliseconds duration) {
  const std::int64_t value = duration.count();
  if (value != 0 && value % 3'600'000 == 0) return std::to_string(value / 3'600'000) + "h";
  if (value != 0 && value % 60'000 == 0) return std::to_string(value / 60'000) + "m";
  if (value % 1000 == 0) return std::to_string(value / 1000) + "s";
  return std::to_string(value) + "ms";
}

}  // namespace mooncake
