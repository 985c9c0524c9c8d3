#include "transfer/transports/shm/guests.h"

#include <cassert>

namespace mooncake::transfer::shm {

bool Guests::dismiss(base::Incarnation peer) {
  const auto found = processes_.find(peer);
  if (found == processes_.end() || --found->second > 0) return false;
  processes_.erase(found);
  return true;
}

Result<void> Guests::check_parties(const net::ServerCall& call, const AttemptId& attempt,
                                   base::Incarnation receiver) const {
  if (call.peer().boot_id != host_.boot_id) {
    return fail(Code::kNotSupported, "only for processes of this host");
  }
  if (attempt.engine != call.peer().incarnation) {
    return fail(Code::kInvalidArgument, "an attempt of another engine than the connection's");
  }
  if (receiver != host_.incarnation) {
    return fail(Code::kConnectionLost, "meant for another life of this engine");
  }
  return {};
}

bool OpenRanges::take(base::Incarnation peer, std::size_t ranges) {
  const auto found = of_.find(peer);
  const std::size_t its = found == of_.end() ? 0 : found->second;
  if (ranges > most_ - all_ || ranges > most_of_one_ - its) return false;
  if (ranges == 0) return true;
  of_[peer] += ranges;
  all_ += ranges;
  return true;
}

void OpenRanges::give_back(base::Incarnation peer, std::size_t ranges) {
  const auto found = of_.find(peer);
  if (found == of_.end()) return;
  assert(ranges <= found->second);
  all_ -= ranges;
  found->second -= ranges;
  if (found->second == 0) of_.erase(found);
}

}  // namespace mooncake::transfer::shm
