#include "transfer/transports/shm/guests.h"

#include <algorithm>
#include <cassert>

#include "base/random.h"

namespace mooncake::transfer::shm {

GuestId Guests::admit(base::Incarnation engine) {
  for (;;) {
    const GuestId guest{base::secure_random()};
    if (guest != GuestId{} && engines_.try_emplace(guest, engine).second) return guest;
  }
}

std::size_t Guests::of(base::Incarnation engine) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      engines_, [engine](const auto& guest) { return guest.second == engine; }));
}

Result<GuestId> Guests::guest_of(const net::ServerCall& call, const AttemptId& attempt,
                                 base::Incarnation receiver) const {
  if (call.peer().boot_id != host_.boot_id) {
    return fail(Code::kNotSupported, "only for processes of this host");
  }
  if (receiver != host_.incarnation) {
    return fail(Code::kConnectionLost, "meant for another life of this engine");
  }
  const auto found = engines_.find(GuestId{static_cast<std::uint64_t>(attempt.engine)});
  if (found == engines_.end() || found->second != call.peer().incarnation) {
    return fail(Code::kNotSupported, "not let in at the gate");
  }
  return found->first;
}

bool OpenRanges::take(GuestId guest, std::size_t ranges) {
  const auto found = of_.find(guest);
  const std::size_t its = found == of_.end() ? 0 : found->second;
  if (ranges > most_ - all_ || ranges > most_of_one_ - its) return false;
  if (ranges == 0) return true;
  of_[guest] += ranges;
  all_ += ranges;
  return true;
}

void OpenRanges::give_back(GuestId guest, std::size_t ranges) {
  const auto found = of_.find(guest);
  if (found == of_.end()) return;
  assert(ranges <= found->second);
  all_ -= ranges;
  found->second -= ranges;
  if (found->second == 0) of_.erase(found);
}

}  // namespace mooncake::transfer::shm
