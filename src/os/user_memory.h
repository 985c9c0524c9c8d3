// Copies from and to memory that this process does not vouch for: buffers that users have
// registered, and may have unmapped, protected or truncated since. What can't be reached is told,
// where a plain copy would end the process by a signal.
#pragma once

#include <cstddef>
#include <span>

#include "base/buffers.h"

namespace mooncake::os {

// All of `from`, one after the other, to `to`, which is ours and large enough. False when some of
// it can't be read; `to` is then undefined. Any thread.
bool gather_from_user(std::byte* to, base::ConstBuffers from);

// `from`, which is ours, to places one after the other that take all of it. The number of places
// that were filled, or of which all that is left of `from` went into the last: less than their
// number names the place that can't be written.
std::size_t scatter_to_user(std::span<const std::span<std::byte>> to, base::ConstBuffer from);

// Whether the page at `address` may be written; it is made present meanwhile.
bool is_user_writable(const void* address);

}  // namespace mooncake::os
