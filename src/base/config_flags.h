// gflags-style flags: -port=1, --port 1, -flag, --noflag.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "mooncake/config.h"

namespace mooncake::base {

// Row of the table -> text as given; of repeated flags the last one counts. '-' inside a name reads
// as
// '_'. A boolean takes its value only after '='; "--" may end the flags. An unknown flag is an
// error that names the nearest known one, and so is a word that belongs to no flag.
Result<std::map<std::size_t, std::string>> parse_flags(std::span<const Setting> table,
                                                       std::span<const std::string> arguments);

}  // namespace mooncake::base
