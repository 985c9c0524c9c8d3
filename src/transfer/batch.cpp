// One batch: grouped by peer and direction, cut into requests, several of which are on their way at
// once. A failed attempt is repeated after the older one is fenced, so that no late byte can land
// over what a later attempt has written.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "transfer/batch_run.h"
#include "transfer/cursor.h"

namespace mooncake::transfer {

namespace {

constexpr std::size_t kPipeline = 4;  // requests of one group on their way
constexpr base::Duration kLongestPause = std::chrono::milliseconds(50);
constexpr base::Duration kFenceOfCancelled = std::chrono::milliseconds(250);

// The peer's regions are other ones than those we know.
bool is_stale_key(Code code) {
  return code == Code::kRegionKeyMismatch || code == Code::kAddressNotRegistered;
}

// The attempt never began: nothing of it can land.
bool never_sent(Code code) { return code == Code::kUnreachable || code == Code::kBusy; }

// Also for ways that are only found to lead there later.
RequestLimits limits_for(const Peer& peer, std::span<const Candidate> candidates,
                         std::vector<std::size_t> ways) {
  for (std::size_t i = 0; i < candidates.size() && !peer.same_process; ++i) {
    if (candidates[i].capabilities->reach != Reach::kProcess) ways.push_back(i);
  }
  return common_limits(candidates, ways);
}

std::uint64_t total_length(std::span<const Slice> slices) {
  return std::accumulate(slices.begin(), slices.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Slice& slice) { return sum + slice.length; });
}

}  // namespace

bool BatchRun::worth_repeating(Code code) {
  return code == Code::kConnectionLost || code == Code::kUnreachable || code == Code::kBusy ||
         code == Code::kTransferFailed;
}

base::Duration BatchRun::pause_after(const Error& error) {
  const base::Duration asked = std::chrono::milliseconds(std::max(1u, error.retry_after_ms()));
  return std::min(asked, kLongestPause);
}

Task<void> EngineImpl::transfer(std::span<EngineRequest> requests, TimePoint deadline,
                                std::map<std::string, std::uint64_t>* moved,
                                os::CancelToken* cancel) {
  if (stopping_ || os::is_cancelled(cancel)) {
    for (EngineRequest& request : requests)
      request.slice.code = Code::kCancelled;
    co_return;
  }
  const std::uint64_t id = open_batch();
  {
    BatchRun batch(*this, id, requests, deadline, moved, cancel);
    co_await batch.run();
  }
  close_batch(id);
}

std::uint64_t EngineImpl::open_batch() {
  open_batches_.insert(next_batch_);
  return next_batch_++;
}

void EngineImpl::close_batch(std::uint64_t id) {
  open_batches_.erase(id);
  if (open_batches_.empty() && all_closed_) all_closed_->set(true);
}

Task<void> BatchRun::run() {
  const auto groups = group();
  if (groups.size() == 1) {
    co_await run_group(*groups.front());
    co_return;
  }
  base::TaskGroup tasks;
  for (const auto& each : groups)
    tasks.start(run_group(*each));
  co_await tasks.join();
}

Code BatchRun::check(const EngineRequest& request) const {
  const Slice& slice = request.slice;
  std::uint64_t local = 0;
  for (const base::MutableBuffer& buffer : slice.local)
    local += buffer.size();
  if (local != slice.length || request.priority > Priority::kUrgent) return Code::kInvalidArgument;
  if (slice.remote + slice.length < slice.remote) return Code::kAddressNotRegistered;
  if (!engine_.find_segment(request.target)) return Code::kSegmentNotFound;
  return Code::kOk;
}

// Sets aside what is wrong or empty.
std::vector<std::unique_ptr<BatchRun::Group>> BatchRun::group() {
  std::map<std::tuple<SegmentHandle, Opcode, Priority>, Group*> by_target;
  std::vector<std::unique_ptr<Group>> groups;
  for (std::size_t entry = 0; entry < requests_.size(); ++entry) {
    EngineRequest& each = request(entry);
    each.slice.code = check(each);
    if (each.slice.code != Code::kOk || each.slice.length == 0) continue;
    Group*& group = by_target[{each.target, each.slice.opcode, each.priority}];
    if (!group) {
      groups.push_back(std::make_unique<Group>(*engine_.find_segment(each.target), each.priority));
      group = groups.back().get();
    }
    group->entries.push_back(entry);
  }
  return groups;
}

Task<void> BatchRun::run_group(Group& group) {
  if (engine_.has_ended(group.segment.peer)) {
    co_await engine_.find_again(group.segment, deadline_, cancel_);
  }
  if (const auto known = co_await know(group); !known) {
    note_all(group.entries, known.error().code());
    co_return;
  }
  if (!plan(group)) {
    note_all(group.entries, Code::kNotSupported);
    co_return;
  }
  const std::size_t workers = std::min(kPipeline, group.parts.size());
  if (workers <= 1) {
    co_await work(group);
  } else {
    base::TaskGroup tasks;
    for (std::size_t i = 0; i < workers; ++i)
      tasks.start(work(group));
    co_await tasks.join();
  }
  if (!group.ranking.empty()) engine_.note_direct(group.segment, group.ranking.front());
}

bool BatchRun::plan(Group& group) {
  std::vector<std::uint64_t> lengths;
  Workload& workload = group.workload;
  workload.opcode = request(group.entries.front()).slice.opcode;
  for (const std::size_t entry : group.entries) {
    const Slice& slice = request(entry).slice;
    lengths.push_back(failed(entry) ? 0 : slice.length);
    workload.bytes += lengths.back();
    workload.guarded |= slice.guard != 0;
  }
  workload.ranges = lengths.size();
  const auto candidates = rank_ways(group);
  if (group.ranking.empty()) return false;
  group.parts = cut(lengths, limits_for(group.segment.peer, candidates, group.ranking));
  return true;
}

std::vector<Candidate> BatchRun::rank_ways(Group& group) {
  const Peer& peer = group.segment.peer;
  auto candidates = engine_.candidates_for(peer, group.workload.guarded, nullptr);
  group.ranking = rank(candidates, group.workload);
  group.life = peer.incarnation;
  return candidates;
}

// The ways to another life of the peer may be other ones, and all are worth a try.
bool BatchRun::has_way(Group& group, Part& part) {
  if (group.life != group.segment.peer.incarnation) rank_ways(group);
  if (part.life != group.life) {
    part.life = group.life;
    part.path = 0;
    part.last_lane.reset();
  }
  return !group.ranking.empty();
}

Task<void> BatchRun::work(Group& group) {
  while (group.next_part < group.parts.size())
    co_await run_part(group, group.next_part++);
}

void BatchRun::fill(Group& group, std::size_t index, Part& part) {
  part.number = next_part_++;
  for (const Piece& piece : group.parts[index]) {
    const std::size_t entry = group.entries[piece.entry];
    if (failed(entry)) continue;  // one piece before this one has told
    const Slice& whole = request(entry).slice;
    Slice slice = whole;
    slice.length = piece.length;
    slice.remote = whole.remote + piece.offset;
    if (piece.length != whole.length) {
      part.cut.push_back(sub_buffers(whole.local, piece.offset, piece.length));
      slice.local = part.cut.back();
    }
    part.slices.push_back(slice);
    part.entries.push_back(entry);
  }
}

Task<void> BatchRun::run_part(Group& group, std::size_t index) {
  Part part;
  fill(group, index, part);
  while (!part.slices.empty()) {
    const bool again = co_await attempt(group, part);
    if (!again) break;
  }
}

// True when there is something left to try.
Task<bool> BatchRun::attempt(Group& group, Part& part) {
  Segment& segment = group.segment;
  if (is_gone(segment)) {
    give_up(part, code_at_end(Code::kUnreachable));
    co_return false;
  }
  if (!called_off() && !segment.peer.same_process &&
      segment.peer.incarnation == base::Incarnation{}) {
    const auto known = co_await engine_.describe(segment, {}, deadline_, cancel_);
    if (!known) co_return co_await repeat(group, part, known.error());
  }
  if (is_over()) {
    give_up(part, code_at_end(Code::kDeadlineExceeded));
    co_return false;
  }
  const bool clear =
      co_await engine_.wait_for_left_writes(segment.peer, part.slices, deadline_, cancel_);
  if (!clear) {
    give_up(part, code_at_end(Code::kDeadlineExceeded));
    co_return false;
  }
  if (!has_way(group, part)) {
    give_up(part, Code::kNotSupported);
    co_return false;
  }
  const std::size_t way = group.ranking[part.path % group.ranking.size()];
  std::optional<Lanes::Pass> pass;
  if (Lanes* const lanes = engine_.lanes_of(segment, way)) {
    auto entered = co_await lanes->enter(total_length(part.slices), group.priority, deadline_,
                                         part.last_lane, cancel_);
    if (!entered || is_over()) {
      give_up(part, code_at_end(entered ? Code::kDeadlineExceeded : entered.error().code()));
      co_return false;
    }
    pass.emplace(*std::move(entered));
    // Meanwhile another part may have found that this life of the peer has ended.
    if (segment.peer.incarnation == base::Incarnation{}) co_return true;
  }
  Transport& transport = *engine_.transports_[way];
  const Peer peer = segment.peer;
  AttemptId id;
  id.engine = engine_.identity_.incarnation;
  id.batch = id_;
  id.slice = part.number;
  id.attempt = ++part.attempts;
  id.oldest_open_batch = engine_.oldest_open_batch();
  if (part.attempts > 1) ++engine_.retried_attempts_;
  Result<void> outcome;
  if (pass) {
    part.last_lane = pass->lane();
    outcome = co_await execute_on(*std::move(pass), transport, peer, id, part);
  } else {
    outcome = co_await transport.execute(peer, id, 0, part.slices, deadline_, cancel_);
  }
  if (group.parts.size() > 1) note_written(part);
  settle_done(part, transport.capabilities().name);
  if (part.slices.empty()) co_return false;
  if (outcome) co_return co_await after_answer(group, part);
  co_return co_await after_failure(group, part, transport, peer, id, std::move(outcome).error());
}

// An attempt that its lane holds for too long is called off.
Task<Result<void>> BatchRun::execute_on(Lanes::Pass pass, Transport& transport, const Peer& peer,
                                        AttemptId id, Part& part) {
  os::Executor& executor = engine_.env_.executor;
  os::CancelToken over;
  os::CancelToken::Watch watch(cancel_, [&over] { over.cancel(); });
  bool stuck = false;
  os::TimerId timer = os::TimerId::kNone;
  const TimePoint limit = executor.now() + pass.patience();
  if (limit < deadline_) {
    timer = executor.run_at(limit, [&over, &stuck] {
      stuck = true;
      over.cancel();
    });
  }
  auto outcome = co_await transport.execute(peer, id, pass.lane(), part.slices, deadline_, &over);
  executor.cancel(timer);
  if (outcome) {
    pass.end(Lanes::End::kDone);
  } else if (stuck && outcome.error().code() == Code::kCancelled && !called_off()) {
    pass.end(Lanes::End::kStuck);
    ++engine_.stuck_attempts_;
    part.stuck = true;
    outcome = fail(Code::kConnectionLost,
                   fmt::format("lane {} to {} stands still", pass.lane(), peer.name));
  } else if (outcome.error().code() == Code::kConnectionLost ||
             outcome.error().code() == Code::kUnreachable) {
    pass.end(Lanes::End::kFailed);
  }
  co_return outcome;
}

void BatchRun::take_out(Part& part, Code code) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < part.slices.size(); ++i) {
    if (part.slices[i].code == code) continue;
    part.slices[kept] = part.slices[i];
    part.entries[kept] = part.entries[i];
    ++kept;
  }
  part.slices.resize(kept);
  part.entries.resize(kept);
}

void BatchRun::settle_done(Part& part, std::string_view transport) {
  for (const Slice& slice : part.slices) {
    if (slice.code != Code::kOk) continue;
    const std::string way(slice.way.empty() ? transport : slice.way);
    engine_.add_moved(way, slice.length);
    if (moved_) (*moved_)[way] += slice.length;
  }
  take_out(part, Code::kOk);
}

void BatchRun::note_written(const Part& part) {
  for (const Slice& slice : part.slices) {
    const bool done = slice.code == Code::kOk || was_taken_back(slice);
    if (done && is_plain_write(slice)) written_.insert(slice.key);
  }
}

void BatchRun::give_up(Part& part, Code code) {
  note_all(part.entries, code);
  part.slices.clear();
  part.entries.clear();
}

// The peer has answered for each range. Those whose key was looked up here get a second look, not
// where the batch has written: what was taken back since may be another's by now.
Task<bool> BatchRun::after_answer(Group& group, Part& part) {
  const bool renew = !std::exchange(part.keys_renewed, true);
  for (std::size_t i = 0; i < part.slices.size(); ++i) {
    Slice& slice = part.slices[i];
    const bool known = request(part.entries[i]).key_given || written_.contains(slice.key);
    if (renew && !known && is_stale_key(slice.code)) continue;
    if (was_taken_back(slice)) slice.code = Code::kAddressNotRegistered;
    note(part.entries[i], std::exchange(slice.code, Code::kOk));
  }
  take_out(part, Code::kOk);
  if (part.slices.empty()) co_return false;

  group.segment.keys.clear();
  const auto found = co_await find_keys(group.segment, part.entries);
  if (!found) {
    give_up(part, found.error().code());
    co_return false;
  }
  for (std::size_t i = 0; i < part.slices.size(); ++i) {
    part.slices[i].key = request(part.entries[i]).slice.key;
    // What is not registered any more has its code by now, and is taken out with what has been
    // moved.
    part.slices[i].code = failed(part.entries[i]) ? Code::kOk : Code::kAddressNotRegistered;
  }
  take_out(part, Code::kOk);
  co_return !part.slices.empty();
}

Task<bool> BatchRun::after_failure(Group& group, Part& part, Transport& transport, Peer peer,
                                   AttemptId id, Error error) {
  const Code code = error.code();
  const bool may_land = part.slices.front().opcode == Opcode::kWrite && !never_sent(code);
  // A read is fenced, too, when its lane stood still: the answer says that the peer did not.
  if ((may_land || part.stuck) && !engine_.stopping_) {
    const bool fenced = co_await fence(transport, peer, id);
    if (!fenced) {
      if (may_land) engine_.quarantine(transport, peer, id, total_length(part.slices));
      give_up(part, code_at_end(code));
      co_return false;
    }
  }
  if (std::exchange(part.stuck, false)) co_return true;  // on another lane
  ++part.path;
  co_return co_await repeat(group, part, std::move(error));
}

// False when it can't be told whether bytes of the attempt may still land. Who cancels wants to
// know that, too, but not to wait for long.
Task<bool> BatchRun::fence(Transport& transport, const Peer& peer, AttemptId id) {
  os::Executor& executor = engine_.env_.executor;
  os::CancelToken late;
  os::TimerId timer = os::TimerId::kNone;
  os::CancelToken::Watch watch(cancel_, [&executor, &late, &timer] {
    timer = executor.run_at(executor.now() + kFenceOfCancelled, [&late] { late.cancel(); });
  });
  bool fenced = false;
  std::uint32_t failures = 0;
  while (!late.cancelled() && !engine_.stopping_ && engine_.env_.now() < deadline_) {
    const auto answer = co_await transport.fence(peer, id, deadline_, &late);
    fenced = answer.has_value();
    if (fenced) break;
    if (!worth_repeating(answer.error().code()) || ++failures >= engine_.max_attempts_) break;
  }
  executor.cancel(timer);
  co_return fenced;
}

// Whether what is left may be tried again; gives it up if not.
Task<bool> BatchRun::repeat(Group& group, Part& part, Error error) {
  const Code code = error.code();
  if (code == Code::kBusy && engine_.env_.now() + pause_after(error) < deadline_) {
    co_await engine_.env_.executor.sleep_for(pause_after(error));
    co_return true;
  }
  // What one way can't do is not held against those that have not been tried.
  if (code == Code::kTransferFailed && part.path < group.ranking.size()) co_return true;
  if (!worth_repeating(code) || ++part.failures >= engine_.max_attempts_) {
    give_up(part, code);
    co_return false;
  }
  const bool leads_on = co_await find_another_way(group.segment, code);
  if (!leads_on) give_up(part, code);
  co_return leads_on;
}

// Where nobody was reached, and the name leads nowhere else, another attempt of this call would
// only wait its turn, be it of another part: the next call finds a peer that has come back.
Task<bool> BatchRun::find_another_way(Segment& segment, Code code) {
  const net::Address asked = segment.peer.address;
  co_await engine_.find_again(segment, deadline_, cancel_);
  if (code != Code::kUnreachable || segment.peer.address != asked) co_return true;
  gone_[&segment] = asked;
  co_return false;
}

}  // namespace mooncake::transfer
