#include "mooncake/result.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace mooncake {

namespace {

constexpr auto kCodes = std::to_array<CodeInfo>({
#define MC_CODE(name, wire, domain, traits, transfer, c_status, tent, store, text) \
  {#name, Domain::domain, static_cast<std::uint8_t>(traits), transfer, c_status, tent, store, text},
#include "mooncake/codes.def"
#undef MC_CODE
});

constexpr auto kWireNumbers = std::to_array<std::uint16_t>({
#define MC_CODE(name, wire, domain, traits, transfer, c_status, tent, store, text) wire,
#include "mooncake/codes.def"
#undef MC_CODE
});

// Wire number -> row + 1; 0 where there is none. A number that two codes share stops the build.
constexpr std::size_t kMaxWire = *std::max_element(kWireNumbers.begin(), kWireNumbers.end());
constexpr auto kRows = [] {
  std::array<std::uint8_t, kMaxWire + 1> rows{};
  for (std::size_t row = 0; row < kWireNumbers.size(); ++row) {
    auto& slot = rows[kWireNumbers[row]];
    if (slot != 0) throw "two codes have one wire number";
    slot = static_cast<std::uint8_t>(row + 1);
  }
  return rows;
}();
static_assert(kCodes.size() < 255);

std::size_t row_of(std::size_t wire) noexcept { return wire <= kMaxWire ? kRows[wire] : 0; }

}  // namespace

const CodeInfo& code_info(Code code) noexcept {
  const std::size_t row = row_of(static_cast<std::size_t>(code));
  return kCodes[(row != 0 ? row : row_of(static_cast<std::size_t>(Code::kInternal))) - 1];
}

Code code_from_wire(std::uint16_t value) noexcept {
  return row_of(value) != 0 ? static_cast<Code>(value) : Code::kInternal;
}

// Several codes may share a number: the Store's own says best what it means.
std::string_view store_code_text(std::int32_t number) noexcept {
  std::string_view text;
  for (const CodeInfo& info : kCodes) {
    if (info.store != number) continue;
    if (info.domain == Domain::kStore) return info.text;
    if (text.empty()) text = info.text;
  }
  return text;
}

struct Error::Detail {
  explicit Detail(std::string words) : text(std::move(words)) {}

  std::atomic<std::uint32_t> references{1};
  const std::string text;
};

Error::Error(Code code) noexcept
    : code_(code), domain_(code_info(code).domain), traits_(code_info(code).traits) {
  assert(code != Code::kOk);
}

Error::Error(Code code, std::string_view detail) : Error(code) {
  if (!detail.empty()) detail_ = new Detail(std::string(detail));
}

Error::Error(const Error& other) noexcept
    : code_(other.code_),
      domain_(other.domain_),
      traits_(other.traits_),
      retry_after_ms_(other.retry_after_ms_),
      detail_(other.detail_) {
  if (detail_) detail_->references.fetch_add(1, std::memory_order_relaxed);
}

Error::Error(Error&& other) noexcept
    : code_(other.code_),
      domain_(other.domain_),
      traits_(other.traits_),
      retry_after_ms_(other.retry_after_ms_),
      detail_(std::exchange(other.detail_, nullptr)) {}

Error& Error::operator=(Error other) noexcept {
  code_ = other.code_;
  domain_ = other.domain_;
  traits_ = other.traits_;
  retry_after_ms_ = other.retry_after_ms_;
  std::swap(detail_, other.detail_);
  return *this;
}

Error::~Error() {
  // Acquire pairs with the releases of the other owners: their reads come before this delete.
  if (detail_ && detail_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete detail_;
}

Error Error::with_retry_after(std::uint32_t milliseconds) && noexcept {
  retry_after_ms_ = milliseconds;
  return std::move(*this);
}

Error Error::with_context(std::string_view what) && {
  std::string text(what);
  if (!detail().empty()) {
    text += ": ";
    text += detail();
  }
  Error result(code_, text);
  result.retry_after_ms_ = retry_after_ms_;
  return result;
}

std::string_view Error::detail() const noexcept {
  return detail_ ? std::string_view(detail_->text) : std::string_view();
}

std::string Error::message() const {
  std::string result(code_info(code_).text);
  if (detail_) {
    result += ": ";
    result += detail_->text;
  }
  return result;
}

}  // namespace mooncake
