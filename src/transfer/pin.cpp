// Bytes of a peer, shown where they lie.
#include <utility>

#include "transfer/engine_impl.h"

namespace mooncake::transfer {

namespace {

// Who lives at the peer's address is then to be asked anew.
bool may_have_ended(Code code) {
  return code == Code::kConnectionLost || code == Code::kUnreachable ||
         code == Code::kDeadlineExceeded;
}

}  // namespace

Task<Result<PinnedBytes>> EngineImpl::pin(SegmentHandle target, Slice slice, TimePoint deadline) {
  Segment* const segment = find_segment(target);
  if (!segment) co_return fail(Code::kSegmentNotFound);
  if (slice.guard == 0 || slice.length == 0 || slice.remote + slice.length < slice.remote) {
    co_return fail(Code::kInvalidArgument, "only bytes of guarded memory are pinned");
  }
  if (stopping_) co_return fail(Code::kCancelled, "the engine is closed");
  AttemptId id;
  id.engine = identity_.incarnation;
  id.batch = open_batch();
  id.oldest_open_batch = oldest_open_batch();
  Result<PinnedBytes> pinned = co_await pin_by_any(*segment, id, slice, deadline);
  close_batch(id.batch);
  co_return pinned;
}

Task<Result<PinnedBytes>> EngineImpl::pin_by_any(Segment& segment, AttemptId id, const Slice& slice,
                                                 TimePoint deadline) {
  if (segment.peer.same_process) co_return co_await pin_in(segment.peer, id, slice, deadline);
  if (has_ended(segment.peer)) segment.peer.incarnation = {};
  if (segment.peer.incarnation == base::Incarnation{}) {
    MC_CO_CHECK(co_await describe(segment, {}, deadline));
  }
  const base::Incarnation life = segment.peer.incarnation;
  Result<PinnedBytes> pinned = co_await pin_in(segment.peer, id, slice, deadline);
  if (pinned || !may_have_ended(pinned.error().code())) co_return pinned;
  segment.peer.incarnation = {};
  if (pinned.error().code() != Code::kConnectionLost) co_return pinned;
  MC_CO_CHECK(co_await describe(segment, {}, deadline));
  // Only of another life: this one may still end what was asked for under the same number.
  if (segment.peer.incarnation == life) co_return pinned;
  co_return co_await pin_in(segment.peer, id, slice, deadline);
}

Task<Result<PinnedBytes>> EngineImpl::pin_in(Peer peer, AttemptId id, const Slice& slice,
                                             TimePoint deadline) {
  for (const auto& transport : transports_) {
    std::string why;
    if (!transport->reaches(peer, why)) continue;
    Result<PinnedBytes> pinned = co_await transport->pin(peer, id, slice, deadline);
    if (pinned || pinned.error().code() != Code::kNotSupported) co_return pinned;
  }
  co_return fail(Code::kNotSupported, "its memory can't be seen from this process");
}

}  // namespace mooncake::transfer
