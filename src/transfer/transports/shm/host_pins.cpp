#include "transfer/transports/shm/host_pins.h"

#include <algorithm>
#include <utility>

#include "transfer/access.h"
#include "transfer/requests.h"

namespace mooncake::transfer::shm {

namespace {

constexpr std::size_t kMostEndedEarly = 1024;

Task<Result<net::Bytes>> at_once(Result<net::Bytes> result) { co_return result; }

}  // namespace

HostPins::HostPins(const TransportContext& context, const Guests& guests)
    : context_(context), guests_(guests) {
  context_.server.handle(net::Method::kPin,
                         [this](net::ServerCall& call) { return at_once(pin(call)); });
  context_.server.handle(net::Method::kUnpin,
                         [this](net::ServerCall& call) { return at_once(unpin(call)); });
}

void HostPins::end_all(GuestId guest) {
  auto it = pins_.lower_bound(first_key_of(guest));
  while (it != pins_.end() && guest_of(it->first) == guest) {
    ranges_.give_back(guest, it->second.size());
    it = pins_.erase(it);
  }
  std::erase_if(ended_early_, [guest](const AttemptKey& key) { return guest_of(key) == guest; });
}

Result<net::Bytes> HostPins::pin(const net::ServerCall& call) {
  MC_TRY(const TransferMessage message, decode_pin(call.body()));
  MC_TRY(const GuestId guest, guests_.guest_of(call, message.attempt, message.receiver));
  if (std::ranges::any_of(message.ranges, [](const auto& range) { return range.guard == 0; })) {
    return fail(Code::kInvalidArgument, "only guarded ranges are pinned");
  }
  const AttemptKey key = key_of(guest, message.attempt);
  if (pins_.contains(key) || std::ranges::find(ended_early_, key) != ended_early_.end()) {
    return fail(Code::kInvalidArgument, "the attempt was here before");
  }
  const std::size_t asked = message.ranges.size();
  if (!ranges_.take(guest, asked)) return fail(Code::kBusy, "too many ranges are pinned");
  std::vector<Code> codes;
  Pins pins;
  for (const RemoteRange& range : message.ranges) {
    auto pin = ReadAccess(context_.registry, range).pin();
    codes.push_back(pin ? Code::kOk : pin.error().code());
    if (is_refusal(codes.back())) context_.counters.refused_ranges.add();
    if (pin) pins.push_back(*std::move(pin));
  }
  ranges_.give_back(guest, asked - pins.size());
  if (!pins.empty()) pins_.emplace(key, std::move(pins));
  return encode_codes(codes);
}

// A pin whose answer was lost may come after its end, by another connection.
Result<net::Bytes> HostPins::unpin(const net::ServerCall& call) {
  MC_TRY(const FenceMessage message, decode_fence(call.body()));
  MC_TRY(const GuestId guest, guests_.guest_of(call, message.attempt, message.receiver));
  const AttemptKey key = key_of(guest, message.attempt);
  const auto found = pins_.find(key);
  if (found == pins_.end()) {
    ended_early_.push_back(key);
    if (ended_early_.size() > kMostEndedEarly) ended_early_.pop_front();
    return encode_fenced();
  }
  ranges_.give_back(guest, found->second.size());
  pins_.erase(found);
  return encode_fenced();
}

}  // namespace mooncake::transfer::shm
