// Result<T> and Error: how every call of the product says that it failed.
//
// An Error is two words. Codes come from codes.def, the same list on every surface; the detail
// names the thing, the value and the way out, and is only built when something has failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace mooncake {

enum class Code : std::uint16_t {
#define MC_CODE(name, wire, domain, traits, transfer, c_status, tent, store, text) name = wire,
#include "mooncake/codes.def"
#undef MC_CODE
};

enum class Domain : std::uint8_t { kGeneral, kTransfer, kStore };

// Who can mend it, and whether the same call may succeed when it is made again.
enum ErrorTraits : std::uint8_t {
  kNobody = 0,  // a fact of life: a miss, a full pool
  kCaller = 1,  // the arguments or the order of calls
  kPeer = 2,    // another process or the network
  kSystem = 3,  // this machine
  kFaultMask = 3,
  kRetriable = 4,
};

// The fixed numbers and the words of one code.
struct CodeInfo {
  std::string_view name;
  Domain domain;
  std::uint8_t traits;
  std::int32_t transfer;
  std::int32_t c_status;
  std::int32_t tent;
  std::int32_t store;
  std::string_view text;
};

// Total: an unknown value yields the row of kInternal.
const CodeInfo& code_info(Code code) noexcept;
// The code with this wire number; kInternal when there is none. For numbers that came from a peer.
Code code_from_wire(std::uint16_t value) noexcept;

// Words for a number of the Store surface, for people; empty when no code has it.
std::string_view store_code_text(std::int32_t number) noexcept;

class [[nodiscard]] Error {
 public:
  explicit Error(Code code) noexcept;
  Error(Code code, std::string_view detail);
  Error(const Error& other) noexcept;
  Error(Error&& other) noexcept;
  Error& operator=(Error other) noexcept;
  ~Error();

  Code code() const noexcept { return code_; }
  Domain domain() const noexcept { return domain_; }
  bool retriable() const noexcept { return (traits_ & kRetriable) != 0; }
  ErrorTraits fault() const noexcept { return static_cast<ErrorTraits>(traits_ & kFaultMask); }
  std::int32_t store_code() const noexcept { return code_info(code_).store; }
  std::int32_t transfer_code() const noexcept { return code_info(code_).transfer; }

  // Milliseconds after which a kBusy peer wants to be asked again; 0 when it named none.
  std::uint32_t retry_after_ms() const noexcept { return retry_after_ms_; }
  Error with_retry_after(std::uint32_t milliseconds) && noexcept;

  // Adds what this layer knows: "open segment 10.0.0.2:15001: connection refused".
  Error with_context(std::string_view what) &&;

  std::string_view detail() const noexcept;
  // "object not found: key 'a/b'" or only the code's words.
  std::string message() const;

  friend bool operator==(const Error& a, const Error& b) noexcept { return a.code_ == b.code_; }

 private:
  struct Detail;  // immutable text with a reference count

  Code code_;
  Domain domain_;
  std::uint8_t traits_;
  std::uint32_t retry_after_ms_ = 0;
  Detail* detail_ = nullptr;
};
static_assert(sizeof(Error) == 16);

template <typename T>
using Result = tl::expected<T, Error>;

// `return fail(Code::kNoSpace, "...")` from a function that returns a Result.
inline tl::unexpected<Error> fail(Code code) { return tl::unexpected<Error>(Error(code)); }
inline tl::unexpected<Error> fail(Code code, std::string_view detail) {
  return tl::unexpected<Error>(Error(code, detail));
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace mooncake

// Leaves the enclosing function with the error of `expression`; MC_TRY binds the value otherwise.
// In a coroutine use MC_CO_CHECK and MC_CO_TRY. Each is several statements: give it braces of its
// own.
#define MC_DETAIL_CAT2(a, b) a##b
#define MC_DETAIL_CAT(a, b) MC_DETAIL_CAT2(a, b)
#define MC_DETAIL_CHECK(result, expression, return_) \
  auto result = (expression);                        \
  if (!result) return_ ::mooncake::fail(std::move(result).error())
#define MC_DETAIL_TRY(result, variable, expression, return_) \
  MC_DETAIL_CHECK(result, expression, return_);              \
  variable = *std::move(result)
#define MC_CHECK(expression) \
  MC_DETAIL_CHECK(MC_DETAIL_CAT(mc_result_, __LINE__), expression, return )
#define MC_TRY(variable, expression) \
  MC_DETAIL_TRY(MC_DETAIL_CAT(mc_result_, __LINE__), variable, expression, return )
#define MC_CO_CHECK(expression) \
  MC_DETAIL_CHECK(MC_DETAIL_CAT(mc_result_, __LINE__), expression, co_return )
#define MC_CO_TRY(variable, expression) \
  MC_DETAIL_TRY(MC_DETAIL_CAT(mc_result_, __LINE__), variable, expression, co_return )
