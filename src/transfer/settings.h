// Settings of the transfer engine that the environment may give.
#pragma once

#include <span>

#include "mooncake/config.h"

namespace mooncake::transfer {

std::span<const Setting> transfer_settings();

}  // namespace mooncake::transfer
