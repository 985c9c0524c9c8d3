// Any line is either refused with an error that names what is wrong, or read; what was read is
// written in the published form, and that is read back as the same request.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "workload/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mooncake::workload;
  const TraceLimits limits{.line_bytes = 4096, .ids_per_request = 64};
  const auto request = parse_request({reinterpret_cast<const char*>(data), size}, limits);
  if (!request) {
    if (request.error().detail().empty()) {
      std::abort();
    }
    return 0;
  }
  if (request->hash_ids.empty() || request->hash_ids.size() > limits.ids_per_request) {
    std::abort();
  }
  std::string line;
  append_line(*request, line);
  line.pop_back();
  const auto again = parse_request(line, {.ids_per_request = limits.ids_per_request});
  if (!again || *again != *request) {
    std::abort();
  }
  return 0;
}
