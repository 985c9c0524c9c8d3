// DemoOptions: what `mooncake demo` was asked for, checked as a whole before anything starts.
#pragma once

#include <mooncake/config.h>
#include <mooncake/result.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "workload/trace.h"

namespace mooncake::demo {

inline constexpr std::uint64_t kPrefillNodes = 2;
inline constexpr std::uint64_t kDecodeNodes = 2;
inline constexpr std::uint64_t kStorageNodes = 1;
inline constexpr std::uint64_t kNodes = kPrefillNodes + kDecodeNodes + kStorageNodes;
// A decode node checks one window while the next arrives.
inline constexpr std::uint64_t kDecodeSlots = 2;
// Of a comparison of paths: enough to be told apart, few enough to be waited for.
inline constexpr std::uint64_t kComparedRequests = 100;

struct DemoOptions {
  std::string trace;           // "sample" or a path
  std::uint64_t requests = 0;  // 0 = as many as the file has, or the sample's default
  std::uint64_t block_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::uint32_t replicas = 1;
  std::uint64_t seed = 0;
  std::string path;           // of hand-offs: auto, tcp or shm
  std::uint64_t compare = 0;  // requests that are replayed again by each path alone; 0 = none
  bool json = false;
  bool inject_corruption = false;
};

// The options, named as on the command line without the dashes.
std::span<const Setting> demo_settings();
// Errors name option, value and what is allowed.
Result<DemoOptions> parse_options(const std::map<std::string, std::string>& given);

// The requests to replay: at least one. Errors name the file and the line or the request.
Result<std::vector<workload::Request>> load_requests(const DemoOptions& options);
// That a block id stands for one position, once in a request: else the bytes of a block could not
// be derived from the two.
Result<void> check_replayable(std::span<const workload::Request> requests);

}  // namespace mooncake::demo
