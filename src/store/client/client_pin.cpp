// Pin: one question to the Master, then the bytes where they lie, at the nearest replica.
#include <algorithm>
#include <utility>

#include "store/client/client_impl.h"

namespace mooncake::store {

namespace {

constexpr int kQuestions = 2;  // the second when another version lies there by now

}  // namespace

Task<Result<transfer::PinnedBytes>> ClientImpl::pin(std::string_view key, TimePoint deadline) {
  const CallUnderWay call(*this);
  std::vector<Code> codes;
  MC_CO_CHECK(accept({&key, 1}, codes));
  if (codes.front() != Code::kOk) co_return fail(codes.front());
  Code failure = Code::kObjectNotFound;
  for (int question = 0; question < kQuestions; ++question) {
    MC_CO_TRY(const PlacedBatch placed, co_await locate({&key, 1}, deadline));
    const PlacedObject& object = placed.objects.front();
    if (object.code != Code::kOk) co_return fail(object.code);
    Result<transfer::PinnedBytes> pinned = co_await pin_found(placed, object, deadline);
    if (pinned) {
      remember_pin(key, pinned->hold);
      co_return pinned;
    }
    failure = pinned.error().code();
    if (!is_stale(failure)) co_return pinned;
    counters_.stale_reads.add();
    failure = Code::kObjectNotFound;
  }
  co_return fail(failure);
}

// Its own segment first, then others of its host.
Task<Result<transfer::PinnedBytes>> ClientImpl::pin_found(const PlacedBatch& placed,
                                                          const PlacedObject& object,
                                                          TimePoint deadline) {
  std::vector<std::size_t> near;
  for (std::size_t r = 0; r < object.replicas.size(); ++r) {
    const SegmentAddress& segment = placed.segments[object.replicas[r].first];
    if (segment.owner == engine_.identity().incarnation) {
      near.insert(near.begin(), r);
    } else if (segment.host == options_.host) {
      near.push_back(r);
    }
  }
  Result<transfer::PinnedBytes> pinned = fail(Code::kNotSupported, "it lies on another host");
  for (const std::size_t r : near) {
    const SegmentHandle segment = target(placed.segments[object.replicas[r].first]);
    pinned = co_await engine_.pin(segment, read_slice(placed, object, r), deadline);
    if (pinned || is_stale(pinned.error().code())) break;
  }
  co_return pinned;
}

// Sweeps whenever there are twice as many as the last time.
void ClientImpl::remember_pin(std::string_view key, const std::shared_ptr<void>& hold) {
  if (pins_.size() >= 2 * pins_swept_ + 16) {
    std::erase_if(pins_, [](const PinnedKey& pin) { return pin.hold.expired(); });
    pins_swept_ = pins_.size();
  }
  pins_.push_back({std::string(key), hold});
}

std::vector<std::string> ClientImpl::pinned_keys() {
  std::erase_if(pins_, [](const PinnedKey& pin) { return pin.hold.expired(); });
  pins_swept_ = pins_.size();
  std::vector<std::string> keys;
  for (const PinnedKey& pin : pins_)
    keys.push_back(pin.key);
  std::ranges::sort(keys);
  keys.erase(std::ranges::unique(keys).begin(), keys.end());
  return keys;
}

// So that eviction takes others first. A pin doesn't rest on it.
Task<void> ClientImpl::renew_leases_of_pins() {
  const std::vector<std::string> keys = pinned_keys();
  if (keys.empty()) co_return;
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const std::vector<Code> codes = co_await exist(views, env_.now() + heartbeat_interval_);
  static_cast<void>(codes);
}

}  // namespace mooncake::store
