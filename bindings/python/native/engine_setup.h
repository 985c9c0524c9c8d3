// What TransferEngine.initialize() is given, in both of its forms, and what comes of it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "mooncake/transfer.h"

namespace mooncake::python {

struct EngineTexts {
  std::string local_hostname;
  std::string metadata_server;
  std::string protocol;
  std::string device_name;
  std::string metadata_type;  // of initialize_ext()
};

struct EnginePlan {
  TransferOptions options;
  std::chrono::milliseconds timeout{};  // of a transfer, before what its length adds
  std::vector<std::string> notices;     // for people, one line each
};

// Every error names the setting, its value and what is allowed. Opens nothing; sets this process's
// log level where MC_LOG_LEVEL is given.
Result<EnginePlan> plan_engine(const EngineTexts& given);

}  // namespace mooncake::python
