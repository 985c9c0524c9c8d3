// What MooncakeDistributedStore.setup() is given, in both of its forms, and what comes of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mooncake/config.h"
#include "mooncake/store.h"

namespace mooncake::python {

// Names and values as text; those of setup(dict).
using SetupTexts = std::map<std::string, std::string>;

struct SetupPlan {
  StoreOptions options;
  std::uint64_t local_buffer_size = 0;  // bytes
  std::vector<std::string> notices;     // for people, one line each
};

// Every error names the setting, its value and what is allowed. Opens nothing.
Result<SetupPlan> plan_setup(SetupTexts given);

}  // namespace mooncake::python
