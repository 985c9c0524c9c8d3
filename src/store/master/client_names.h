// ClientNames: by what name a client is shown to others, who must not know its id.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "store/types.h"

namespace mooncake::store::master {

// The same name for the same client as long as this lives. Nobody can tell the id from it, not even
// who knows the names of many ids.
class ClientNames {
 public:
  ClientNames();

  std::uint64_t of(ClientId client) const;

 private:
  std::array<std::byte, 32> key_;
};

}  // namespace mooncake::store::master
